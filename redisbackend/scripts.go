package redisbackend

import (
	_ "embed"

	"github.com/redis/rueidis"
)

var (
	//go:embed window.lua
	windowLua string
	//go:embed hit.lua
	hitLua string
	//go:embed set.lua
	setLua string
	//go:embed get.lua
	getLua string
	//go:embed delete.lua
	deleteLua string
)

// The client sends a script's hash, and the script itself only to a server that does not
// know it. None is declared read-only, or safe to run again: it must be the primary that
// answers, and once.
var (
	hitScript    = rueidis.NewLuaScript(windowLua + hitLua)
	setScript    = rueidis.NewLuaScript(windowLua + setLua)
	getScript    = rueidis.NewLuaScript(windowLua + getLua)
	deleteScript = rueidis.NewLuaScript(windowLua + deleteLua)
)
