package mockserver

// TB is what [RunT] needs of a *testing.T, *testing.B or *testing.F.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// RunT starts a server for the length of a test. At its end the server is
// closed, and each [Violation] fails the test.
func RunT(t TB, opts ...Option) *Server {
	t.Helper()
	s, err := Start(opts...)
	if err != nil {
		t.Fatalf("mockserver: %v", err)
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
