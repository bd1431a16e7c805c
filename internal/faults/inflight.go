package main

// inflightFaults are the faults in limits on calls in flight that tests see.
var inflightFaults = []fault{}
