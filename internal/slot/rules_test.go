package slot

import "time"

// rule is one of the rules that the model can leave out.
type rule int

const (
	ruleNone rule = iota
	ruleSeenLive
	ruleBelief
	ruleReplyBy
	ruleFree
	ruleArmFirst
	ruleTidySame
	ruleTidySent
	ruleTidyInserted
	ruleGuard
	ruleGuardHalf
	ruleClaim
	ruleTidySettled
	ruleConnection
	ruleSettled
	ruleSettledReset
	ruleChain
	ruleCleanReset
	ruleReturnInTime
	ruleReturnOnce
	ruleKeepFirst
	rules
)

func (c *client) vary(m Move, h History) Move { return m }

func (c *client) varyOps(m Move, ops []Op) []Op { return ops }

func (c *client) varyReset(m Move, h History) Move { return m }

func (c *client) varyHistory(h History) History { return h }

var _ time.Time
