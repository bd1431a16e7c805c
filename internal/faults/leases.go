package main

// leasesFaults are the faults in leases that tests see.
var leasesFaults = []fault{
	{file: "lease/decide.go", old: "share = 8", new: "share = 2"},
	{file: "lease/entry.go", old: "case e.closed:\n\t\te.mu.Unlock()\n\t\treturn pass, nil\n", new: "", run: "^TestAnEntryThatIsClosedTakesNothing$"},
}
