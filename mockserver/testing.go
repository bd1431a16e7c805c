package mockserver

// TB is the part of *testing.T, *testing.B and *testing.F that [RunT] uses.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// RunT starts a server that is closed at the end of the test. Each [Violation] then fails the test.
func RunT(t TB, opts ...Option) *Server {
	t.Helper()
	s, err := Start(opts...)
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}
	t.Cleanup(func() {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Errorf("mockserver: closing: %v", err)
		}
		for _, v := range s.Violations() {
			t.Errorf("mockserver: violation: %v", v)
		}
	})
	return s
}
