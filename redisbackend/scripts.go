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
	//go:embed take.lua
	takeLua string
	//go:embed giveback.lua
	giveBackLua string
)

// The client sends the digest of a script, and sends the script only to a server that does not
// have it. No script is declared read-only or retryable: the primary must execute it, once.
var (
	hitScript    = rueidis.NewLuaScript(windowLua + hitLua)
	setScript    = rueidis.NewLuaScript(windowLua + setLua)
	getScript    = rueidis.NewLuaScript(windowLua + getLua)
	deleteScript = rueidis.NewLuaScript(windowLua + deleteLua)

	takeScript     = rueidis.NewLuaScript(windowLua + takeLua)
	giveBackScript = rueidis.NewLuaScript(windowLua + giveBackLua)
)
