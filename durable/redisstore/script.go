package redisstore

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
)

var (
	//go:embed lua/common.lua
	commonLua string
	//go:embed lua/runs.lua
	runsLua string
	//go:embed lua/schedule.lua
	scheduleLua string
	//go:embed lua/cancel.lua
	cancelLua string
	//go:embed lua/reschedule.lua
	rescheduleLua string
	//go:embed lua/get.lua
	getLua string
	//go:embed lua/list.lua
	listLua string
	//go:embed lua/requeue.lua
	requeueLua string
	//go:embed lua/purge.lua
	purgeLua string
	//go:embed lua/claim.lua
	claimLua string
	//go:embed lua/extend.lua
	extendLua string
	//go:embed lua/end.lua
	endLua string
	//go:embed lua/swap.lua
	swapLua string
	//go:embed lua/plans.lua
	plansLua string
	//go:embed lua/horizons.lua
	horizonsLua string
	//go:embed lua/stats.lua
	statsLua string
	//go:embed lua/countdue.lua
	countDueLua string
	//go:embed lua/open.lua
	openLua string
	//go:embed lua/announce.lua
	announceLua string
	//go:embed lua/heartbeat.lua
	heartbeatLua string
	//go:embed lua/workers.lua
	workersLua string
)

// script is a script and its hash, by which the server knows it.
type script struct{ src, sha string }

func newScript(src string) *script {
	sum := sha1.Sum([]byte(src))
	return &script{src, hex.EncodeToString(sum[:])}
}

// Each call of a script executes all of its text, so a script has no more than it needs.
func ofShard(src string) *script { return newScript(commonLua + src) }
func ofRuns(src string) *script  { return newScript(commonLua + runsLua + src) }

var (
	scheduleScript   = ofShard(scheduleLua)
	cancelScript     = ofRuns(cancelLua)
	rescheduleScript = ofShard(rescheduleLua)
	getScript        = ofShard(getLua)
	listScript       = ofRuns(listLua)
	requeueScript    = ofRuns(requeueLua)
	purgeScript      = ofRuns(purgeLua)
	claimScript      = ofRuns(claimLua)
	extendScript     = ofRuns(extendLua)
	endScript        = ofRuns(endLua)
	swapScript       = ofRuns(swapLua)
	plansScript      = ofShard(plansLua)
	horizonsScript   = ofShard(horizonsLua)
	statsScript      = ofShard(statsLua)
	countDueScript   = ofShard(countDueLua)
	openScript       = ofShard(openLua)
	announceScript   = ofShard(announceLua)
	heartbeatScript  = newScript(heartbeatLua)
	workersScript    = newScript(workersLua)
)
