package main

import "slices"

// faults are the faults that tests see, by the part of the module that they are in.
var faults = slices.Concat(
	calendarFaults,
	commandFaults,
	connectionsFaults,
	inflightFaults,
	leasesFaults,
	limiterFaults,
	memoryFaults,
	postgresFaults,
	redisFaults,
	requestsFaults,
	serversFaults,
)
