package testkit

import (
	"regexp"
	"strings"
	"testing"
)

// AsUserOfTheDocument makes the user of docs/redis.md on a server, behind a Sentinel and on a cluster, and calls use
// with URLs without scheme: also with the older protocol, another database and a name of the connection. It requires
// that servers have denied nothing.
func AsUserOfTheDocument(t *testing.T, document string, use func(url string)) {
	t.Helper()
	server := StartRedis(t)
	sentinel := StartSentinel(t, server)
	cluster := StartCluster(t, 1, 1)
	servers := append(cluster.Nodes(), server)
	rule := append([]string{"ACL", "SETUSER", "limits", "on"}, UserOfTheDocument(t, document)...)
	for _, s := range servers {
		s.Must(t, rule...)
	}
	for _, url := range []string{
		server.Addr, server.Addr + "?protocol=2", server.Addr + "/1?client_name=a",
		server.Addr + "?db=1&client_name=a&protocol=2",
		sentinel.Addr + "?master_set=" + SentinelName,
		sentinel.Addr + "/1?client_name=a&protocol=2&master_set=" + SentinelName,
		cluster.Addrs()[0] + "?client_name=a&addr=" + cluster.Addrs()[1],
	} {
		use("limits:PASSWORD@" + url)
		for _, s := range servers {
			for _, entry := range deniedObject.FindAllStringSubmatch(s.Must(t, "ACL", "LOG"), -1) {
				t.Errorf("%s: denied: %s", url, entry[1])
			}
			s.Must(t, "ACL", "LOG", "RESET")
		}
	}
}

var deniedObject = regexp.MustCompile(`(?m)^object\n(.*)$`)

// UserOfTheDocument returns what the user may do: the arguments after the name, which are quoted for a shell.
func UserOfTheDocument(t *testing.T, document string) []string {
	t.Helper()
	_, rule, _ := strings.Cut(read(document), "redis-cli ACL SETUSER limits on ")
	rule, _, _ = strings.Cut(rule, "```")
	return strings.Fields(strings.NewReplacer("'", "", "\\\n", "").Replace(rule))
}
