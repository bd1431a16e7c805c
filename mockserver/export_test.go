package mockserver

// TableBefore reports whether the key a stands before b in the server's table.
func TableBefore(a, b string) bool {
	return tableOrder(a) < tableOrder(b)
}
