/*
 * The protocol of durable timers, for one key of one shard: a client that schedules and
 * cancels, another that cancels, two workers, and an engine that may fail over and lose
 * writes.
 *
 * Each step is one call of store.Store as the engine carries it out (the comment above it names
 * the method), or the reply to one, or a spontaneous event. A request may be repeated, and arrive
 * again after its call has returned, however late; a reply may be late, or lost. A worker may
 * pause between any two steps, for longer than its lease, or crash.
 *
 * Left out, because no assertion depends on it:
 *   time        a timer may be due, and a lease expire, at any moment
 *   Reschedule  it changes a due time, and nothing else
 *   IfAbsent, MaxPending, Purge, MaxDead   they refuse or remove timers, and move none
 *   Get, List, Horizons, Stats, CountDue, Workers, Heartbeat, events   they change no timer
 *   more keys   each item of a call is atomic by itself, and a holder names its key
 *   a crash of the embedded engine: its workers crash, then the lease expires; unanswered
 *               calls are lost replies
 * Left out, though it matters, and tested elsewhere: a crash within a step.
 *
 * The bounds SCHEDULES and LEASES keep the model finite; nothing else is counted. With
 * 3 of each and a fail-over it has 2.2 million states, with 3 and 4 and no fail-over
 * 0.2 million: check.sh visits all of them.
 *
 * With -DREORDERED the client has concurrent calls of several kinds, and their requests are
 * carried out in any order; without it, the client only schedules, one call after the other.
 */

#ifndef SCHEDULES
#define SCHEDULES 2 /* changes of the client, at most 4; a Schedule makes the timer with its number */
#endif
#ifndef LEASES
#define LEASES 3 /* leases that the engine grants */
#endif
#ifndef FAILOVERS
#define FAILOVERS 1 /* 0 or 1 */
#endif
#define ATTEMPTS 2 /* Claim.MaxAttempts */

/* What the engine's log compares in the broken models, and the macros that they need. */
#if defined(LATE_BY_KIND) || defined(LATE_BY_FLOOR)
#define KINDS
#endif
#if defined(KINDS) || defined(LATE_FOR_OTHERS)
#define REORDERED
#endif

#include "engine.pml"

Shard replica; /* the state of the replica that a fail-over will promote */
bit changed;   /* a Cancel changed something, and its reply was lost */
#if FAILOVERS
byte copied;   /* 0: the replica follows; 1: it has stopped; 2: it was promoted */
byte before;   /* the last token that was drawn before the promotion */
#endif

/* The holder that an Extend or an End must present. */
#if defined(TOKEN_IGNORED)
#define holder(n) (s.leased && w[n].fence == s.fence)
#elif defined(FENCE_IGNORED)
#define holder(n) (s.leased && w[n].token == s.token)
#else
#define holder(n) (s.leased && w[n].fence == s.fence && w[n].token == s.token)
#endif

/* A repeated claim is recognised by its token, unless a fail-over lost that. A copy of an answered
 * claim is rejected as late, and copies of a claim to the old engine do not reach the new one. */
#if defined(CLAIM_FORGOTTEN) || defined(FENCE_IGNORED)
#define forgotten(drawn) true
#elif FAILOVERS
#define forgotten(drawn) (copied == 2 && drawn <= before)
#else
#define forgotten(drawn) false
#endif
#if !FAILOVERS
#define copyable(drawn) true
#elif defined(CLAIM_OUTLIVES)
#define copyable(drawn) (drawn <= before)
#else
#define copyable(drawn) (drawn > before)
#endif

/* The client's kinds of changes. */
#define SCHEDULING 0
#define CANCELLING 1
#define ANOTHER    2 /* Reschedule, Requeue, Purge, or a change of another key */
#define kindof(n)  (((n) + 1) % 3) /* where the engine compares kinds; else any */

/* The request of a change arrives; the calls of the changes in left were in flight when its own
 * began. A call that was in flight later was in flight then, too. */
#define possible(n, left) ((n) > s.log || !(s.open & (bitof(n) - 2) & ~(left)))
#define arrival(n, left) \
	d_step { possible(n, left) && admitted(n, SCHEDULING) -> schedule(n); change(n, SCHEDULING, left) }
#define arrivals(n, left) \
	arrival(n, left) \
	:: d_step { possible(n, left) && admitted(n, CANCELLING) -> \
		printf("engine: change %d cancels\n", n); \
		change(n, CANCELLING, left); cancel(); answer = 0 } \
	:: d_step { possible(n, left) && admitted(n, ANOTHER) -> \
		printf("engine: change %d is another\n", n); \
		change(n, ANOTHER, left); verify() }

/* NotFound without ErrUnsure answers only a request that was sent once. */
#ifdef CANCEL_SURE
#define sure true
#else
#define sure (!changed)
#endif

#ifdef SUCCESSOR_DROPPED
#define dropped_if_out true
#else
#define dropped_if_out false
#endif
#ifdef SUCCESSOR_CANCELLED
#define dropped_if_cancelled s.cancelled
#else
#define dropped_if_cancelled false
#endif

/* The worker resets its slot: it was answered, or has crashed. */
inline forget(who) {
	w[who].at = IDLE;
	w[who].id = 0;
	w[who].fence = 0;
	w[who].token = 0;
	w[who].valid = 0;
}

/* The worker learns the lease that the engine has granted. */
inline learn(who) {
	w[who].id = s.body;
	w[who].fence = s.fence;
}

/* Store.End, with its reply; or without, so that it will be repeated. */
#define ends(guard, how) \
	d_step { (guard) && holder(_pid) -> \
		ended(_pid, how); \
		forget(_pid) } \
	:: d_step { (guard) && holder(_pid) -> \
		ended(_pid, how); \
		printf("worker %d: without a reply\n", _pid); \
		w[_pid].at = ENDS; \
		w[_pid].valid = 0 }

inline ended(who, how) {
	assert(D5 || (w[who].fence == s.fence && w[who].token == s.token));
	printf("worker %d: End, of kind %d\n", who, how);
	finish(how, dropped_if_cancelled)
}

/* Workers, by their _pid 0 and 1. */
active [2] proctype Worker() {
end:	do
	/* Store.Claim. By symmetry of the workers, worker 0 claims first. A worker's clock counts
	 * from before the claim was sent. */
	:: d_step { w[_pid].at == IDLE && leasable && (_pid == 0 || leases > 0) ->
		w[_pid].at = CLAIMS;
		w[_pid].token = leases + 1;
		w[_pid].valid = 1;
		lease(w[_pid].token);
		learn(_pid);
		printf("worker %d: claims %d, fence %d, token %d\n", _pid, w[_pid].id, w[_pid].fence, w[_pid].token) }

	/* Its reply arrives, perhaps late. */
	:: d_step { w[_pid].at == CLAIMS ->
		printf("worker %d: has the reply to its claim\n", _pid);
		w[_pid].at = HOLDS }

	/* Or the reply was lost: the claim is repeated with the same token, and finds the lease with
	 * that token, or nothing. The clock continues. */
	:: d_step { w[_pid].at == CLAIMS && s.leased && s.token == w[_pid].token ->
		MET(2);
		printf("worker %d: claims again, and gets the same lease\n", _pid);
#ifdef CLOCK_RESTARTED
		w[_pid].valid = 1;
#endif
		learn(_pid);
		w[_pid].at = HOLDS }
	:: d_step { w[_pid].at == CLAIMS && !(s.leased && s.token == w[_pid].token) ->
		MET(3);
		printf("worker %d: claims again, and gets nothing\n", _pid);
		forget(_pid) }
	:: d_step { w[_pid].at == CLAIMS && forgotten(w[_pid].token) && !(s.leased && s.token == w[_pid].token) && leasable ->
		MET(4);
		lease(w[_pid].token);
		learn(_pid);
		printf("worker %d: claims again, and gets another lease of %d, fence %d\n", _pid, w[_pid].id, w[_pid].fence) }

#if defined(CLAIM_FORGOTTEN) || defined(FENCE_IGNORED) || defined(CLAIM_OUTLIVES)
	/* A copy of a claim arrives after that claim was answered. No worker learns the lease. */
	:: d_step { w[_pid].at > CLAIMS && copyable(w[_pid].token) && !(s.leased && s.token == w[_pid].token) && leasable ->
		printf("engine: a copy of the claim with token %d leases %d\n", w[_pid].token, s.body);
		lease(w[_pid].token) }
#endif

	/* The handler is called. A pause between reading the clock and the call counts as a pause
	 * at the handler's first instruction. */
	:: d_step { w[_pid].at == HOLDS && w[_pid].valid ->
		printf("worker %d: runs %d\n", _pid, w[_pid].id);
		w[_pid].at = RUNS;
		if
		:: w[1 - _pid].at == RUNS -> MET(5)
		:: else
		fi;
		verify() }

	/* Store.Extend, with its reply. An expired lease is extended unless the timer was leased
	 * again. */
	:: d_step { (w[_pid].at == HOLDS || w[_pid].at == RUNS) && holder(_pid) && !s.cancelled && !(w[_pid].valid && !s.out) ->
		assert(D5 || (w[_pid].fence == s.fence && w[_pid].token == s.token));
		printf("worker %d: extends\n", _pid);
		s.out = 0;
		w[_pid].valid = 1;
		verify() }
	/* The same without a reply. */
	:: d_step { (w[_pid].at == HOLDS || w[_pid].at == RUNS) && holder(_pid) && !s.cancelled && s.out ->
		assert(D5 || (w[_pid].fence == s.fence && w[_pid].token == s.token));
		printf("worker %d: extends, without a reply\n", _pid);
		s.out = 0 }
#ifdef EXTEND_REVIVES
	:: d_step { (w[_pid].at == HOLDS || w[_pid].at == RUNS) && holder(_pid) && s.cancelled ->
		printf("worker %d: extends what was cancelled\n", _pid);
		s.out = 0;
		s.cancelled = 0;
		w[_pid].valid = 1;
		verify() }
#endif

	/* Store.End: Ended. A timer whose handler was not called is released. */
	:: ends(w[_pid].at == HOLDS, RELEASE)
	/* How a handler returns. A repeated End has the same kind as the first, because its result
	 * differs from EndLost only after a fail-over. */
	:: ends(w[_pid].at == RUNS || w[_pid].at == ENDS, DONE)
	:: ends(w[_pid].at == RUNS || w[_pid].at == ENDS, RETRY)
	:: ends(w[_pid].at == RUNS || w[_pid].at == ENDS, RELEASE)
	:: ends(w[_pid].at == RUNS || w[_pid].at == ENDS, DEAD_LETTER)
	/* EndLost. */
	:: d_step { w[_pid].at >= HOLDS && !holder(_pid) ->
		if
		:: s.leased && s.fence == w[_pid].fence -> MET(6)
		:: else -> MET(8)
		fi;
		printf("worker %d: End is lost\n", _pid);
		forget(_pid) }

	/* The worker crashes, and another replaces it. */
	:: d_step { w[_pid].at != IDLE ->
		printf("worker %d: crashes\n", _pid);
		forget(_pid) }
	od
}

/* A client that numbers its changes: their requests arrive, for the first time, again, or
 * after their calls have returned. */
active proctype Client() {
end:	do
#ifndef REORDERED
	:: arrival(1, 0)
#if SCHEDULES >= 2
	:: arrival(2, 0)
#endif
#if SCHEDULES >= 3
	:: arrival(3, 0)
#endif
#if SCHEDULES >= 4
	:: arrival(4, 0)
#endif
#else
	:: arrivals(1, 0)
#if SCHEDULES >= 2
	:: arrivals(2, 0)
	:: arrivals(2, 2)
#endif
#if SCHEDULES >= 3
	:: arrivals(3, 0)
	:: arrivals(3, 2)
	:: arrivals(3, 4)
	:: arrivals(3, 6)
#endif
#endif
	od
}

/* Another client: the deadline of the first client's call may pass before its Cancel begins. */
active proctype Canceller() {
end:	do
#ifdef REORDERED
	:: d_step { !(over & 2) -> over = over | 2; s.past = s.past | 2; cancel(); answer = 0 }
#if SCHEDULES >= 2
	:: d_step { !(over & 4) -> over = over | 4; s.past = s.past | 4; cancel(); answer = 0 }
#endif
#if SCHEDULES >= 3
	:: d_step { !(over & 8) -> over = over | 8; s.past = s.past | 8; cancel(); answer = 0 }
#endif
#endif
	/* Store.Cancel, with its reply. A repeated one must not answer NotFound. */
	:: d_step { true ->
		cancel();
		if
		:: answer == NOTFOUND && changed -> MET(9)
		:: else
		fi;
		assert(D4 || answer != NOTFOUND || !sure || !changed);
		changed = 0;
		answer = 0 }
	/* Without its reply: it will be repeated. */
	:: d_step { s.waiting || s.leased ->
		cancel();
		changed = 1;
		answer = 0 }
	/* The caller gives up: ErrUnsure. */
	:: d_step { changed -> changed = 0 }
	od
}

/* Spontaneous events, and calls of any client. */
active proctype World() {
end:	do
	/* The lease expires, by the holder's clock no later than by the engine's. */
	:: d_step { s.leased && !s.out ->
		printf("engine: the lease with fence %d expires\n", s.fence);
		s.out = 1;
		for (i : 0 .. 1) {
			if
			:: w[i].fence == s.fence && w[i].token == s.token -> w[i].valid = 0
			:: else
			fi
		}
		i = 0 }

	/* Store.Claim ends expired leases that it does not renew: DONE for a timer that was cancelled
	 * or has a successor, DEAD_LETTER for one without attempts left. */
	:: d_step { clearable && (s.cancelled || s.succ) ->
		if
		:: s.cancelled && s.succ -> MET(10)
		:: s.cancelled && !s.succ -> MET(11)
		:: else -> MET(12)
		fi;
		finish(DONE, dropped_if_out) }
	:: d_step { clearable && !(s.cancelled || s.succ) -> MET(13); finish(DEAD_LETTER, false) }

	/* Store.Requeue. */
	:: d_step { s.dead -> MET(14); s.dead = 0; s.waiting = 1; s.attempts = 0; verify() }
	od
}

#if FAILOVERS
#ifdef KINDS
#define copykinds(to, from) to.kept[0] = from.kept[0]; to.kept[1] = from.kept[1]; to.kept[2] = from.kept[2]; to.floor = from.floor
#else
#define copykinds(to, from) skip
#endif
#define copy(to, from) \
	to.waiting = from.waiting; to.leased = from.leased; to.dead = from.dead; \
	to.body = from.body; to.succ = from.succ; to.attempts = from.attempts; \
	to.fence = from.fence; to.token = from.token; to.cancelled = from.cancelled; \
	to.out = from.out; to.last = from.last; to.log = from.log; \
	to.open = from.open; to.past = from.past; copykinds(to, from); \
	to.highest = from.highest; \
	for (i : 1 .. SCHEDULES) { to.status[i] = from.status[i] } \
	i = 0

/* A fail-over to a replica that lacks the latest writes. */
active proctype Failover() {
end:	do
	:: d_step { copied == 0 ->
		printf("replica: gets nothing more\n");
		copy(replica, s);
		copied = 1 }
	:: d_step { copied == 1 ->
		printf("replica: is the engine now\n");
		copy(s, replica);
		copied = 2;
		before = leases;
		replica.waiting = 0; replica.leased = 0; replica.dead = 0;
		replica.body = 0; replica.succ = 0; replica.attempts = 0;
		replica.fence = 0; replica.token = 0; replica.cancelled = 0;
		replica.out = 0; replica.last = 0; replica.log = 0;
		replica.highest = 0;
		replica.open = 0; replica.past = 0;
		for (i : 1 .. SCHEDULES) { replica.status[i] = 0 }
		/* A lease that the replica lacks or has with an earlier end does not hold any more. */
		for (i : 0 .. 1) {
			if
			:: s.leased && !s.out && w[i].fence == s.fence && w[i].token == s.token -> skip
			:: else -> w[i].valid = 0
			fi
		}
		verify() }
	od
}
#endif
