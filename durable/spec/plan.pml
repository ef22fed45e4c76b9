/*
 * The protocol of schedules: a plan that creates an occurrence for each of its planned times,
 * two workers that advance it, a client that creates, pauses and resumes it, another that deletes
 * it, and occurrences that end. durable/store/plan.go has the contract.
 *
 * Each step is one call as the engine carries it out, with or without its reply, or a spontaneous
 * event. A worker may pause between any two steps, for longer than its lease, or crash, or die. A
 * request may be repeated if its reply was lost, and a copy of it may arrive again after its call
 * has returned or its sender has crashed.
 *
 * IDs are not in the model. Each swap gives the plan a new ID, so a swap's Expected is the plan's
 * ID if and only if no swap was made since its sender read the plan: that is the bit fresh.
 *
 * The clock has the times 0 to TIMES, each of which is planned. The bounds FAULTS (crashes, lost
 * replies, retries) and CALLS (of the two clients) keep runs finite.
 */

#ifndef TIMES
#define TIMES 3
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef CALLS
#define CALLS 3
#endif

byte now;          /* the clock */
byte faults, calls;

/* The engine's state of the plan. */
bit plan;          /* it exists */
byte next;         /* of the body: the next planned time */
byte buffered;     /* of the body: the time whose occurrence waits for the previous one; 0: none */
bit paused;        /* of the body: the next planned time does not make it due */
bit wake;          /* PlanSwap.Wake is WakeOnEnd */
bit awake;         /* it is due at once */
bit leased, out;   /* it is leased; that lease has expired */
byte holder;       /* the worker that has the lease */
byte ends;         /* of the History */

/* The occurrences, by planned time. */
bit live[TIMES + 2]; /* it waits or runs; a swap that leases it equals a swap and a claim, which is in engine.pml */

/* The history, which the engine does not read. */
byte made[TIMES + 2];    /* how many occurrences were created for a time */
byte skipped[TIMES + 2]; /* how often it was counted as skipped */
byte from;               /* the first planned time that the plan is responsible for */
byte want;               /* 0: unknown; 1: the last call has resumed the plan; 2: it has paused it */
bit deleted;             /* the delete has returned, and no create has begun */
bit dead;                /* worker 1 has died */

#define IDLE   0
#define READ   1 /* it has read the plan */
#define LOOKED 2 /* and then the previous occurrence */
#define SENT   3 /* its swap was sent */

#define NONE   0
#define SWAP   1
#define REMOVE 2
#define CREATE 3

/* Workers 0 and 1, and the clients. */
#define PAUSER 2
#define OWNER  3
typedef Party {
	byte at;
	bit fresh;                  /* the plan has not changed since the party read it */
	bit running;                /* the previous occurrence had not ended */
	byte kind;                  /* of the sent request; the fields below are its contents */
	byte next, buffered;
	bit paused, wake, at_once;
	byte seen;                  /* PlanSwap.Seen */
	byte make, omit;            /* the time whose occurrence the swap creates, or counts as skipped */
};
Party p[4];

/* Always 0: they name the assertions in the output of pan. */
bit S2, S4, S8;

byte i;  /* temporary within one step; 0 between steps */
bit ok;

#ifdef WITNESS
#define MET(n) c_code { static int met; if (!met++) printf("met %d\n", n); }
#else
#define MET(n) skip
#endif

#define unended (live[1] || live[2] || live[3])

/* Store.Claim with Plans: the plan is due, or its lease has expired. */
#ifdef LEASE_KEPT
#define expired false
#else
#define expired (leased && out)
#endif
#define isdue (awake || (!paused && next <= now))
#define claimable (plan && (expired || (!leased && isdue)))

/* Holds after every step. */
inline verify() {
	for (i : 1 .. TIMES) {
		assert(S2 || made[i] + skipped[i] <= 1);
		/* A passed planned time is created, skipped, or buffered. */
		assert(S2 || !plan || i < from || i >= next || made[i] + skipped[i] + (buffered == i) == 1)
	}
	assert(S8 || !plan || !want || paused == want - 1);
	/* A buffered occurrence starts: a worker will claim the plan, or the end of an occurrence
	 * wakes it. */
	assert(S4 || !plan || leased || paused || !buffered || unended || isdue);
	i = 0
}

inline forget(who) {
	p[who].at = IDLE;
	p[who].fresh = 0;
	p[who].running = 0;
	p[who].kind = NONE;
	p[who].next = 0; p[who].buffered = 0; p[who].paused = 0;
	p[who].wake = 0; p[who].at_once = 0; p[who].seen = 0;
	p[who].make = 0; p[who].omit = 0
}

/* The plan is read, by a claim or by Store.Get, with its History. */
inline read(who) {
	forget(who);
	p[who].at = READ;
	p[who].fresh = 1;
	p[who].next = next;
	p[who].buffered = buffered;
	p[who].paused = paused;
	p[who].seen = ends
}

/* An occurrence is created, unless its key exists. */
inline create(time) {
	if
	:: time && !live[time] ->
		assert(S8 || !deleted);
		assert(S8 || want != 2);
		printf("engine: occurrence %d is created\n", time);
		live[time] = 1;
		made[time]++
	:: else
	fi
}

/* The plan differs from what any party has read. */
inline changed() {
	p[0].fresh = 0; p[1].fresh = 0; p[2].fresh = 0; p[3].fresh = 0;
	leased = 0; out = 0; holder = 0;
	wake = 0; awake = 0
}

#if defined(WAS_IGNORED)
#define swaps(who) true
#else
#define swaps(who) (p[who].fresh && plan)
#endif
#ifdef DELETE_BLIND
#define removes(who) plan
#else
#define removes(who) (p[who].fresh && plan)
#endif

/* A party that has not read the current plan cannot change it, so its other variables do not
 * matter. They do in the broken models. */
#if defined(WAS_IGNORED) || defined(DELETE_BLIND) || defined(CREATE_OUTLIVES) || defined(ENTRIES_BEFORE) || defined(ENTRIES_AFTER)
#define STALE_MATTERS
#endif
inline stale(who) {
#ifndef STALE_MATTERS
	if
	:: !p[who].fresh && p[who].kind != CREATE ->
		p[who].running = 0; p[who].next = 0; p[who].buffered = 0; p[who].paused = 0;
		p[who].wake = 0; p[who].at_once = 0; p[who].seen = 0; p[who].make = 0; p[who].omit = 0;
		if
		:: p[who].at == IDLE -> p[who].kind = NONE
		:: else
		fi
	:: else
	fi
#else
	skip
#endif
}

/* Store.SwapPlans of a party's request. */
inline arrives(who) {
	ok = (p[who].kind == SWAP && swaps(who)) || (p[who].kind == REMOVE && removes(who)) || (p[who].kind == CREATE && !plan);
	if
	:: ok && p[who].kind == SWAP ->
		printf("engine: the plan is next due at %d, buffers %d, skips %d\n", p[who].next, p[who].buffered, p[who].omit);
		changed();
		plan = 1;
		next = p[who].next;
		buffered = p[who].buffered;
		paused = p[who].paused;
#ifdef WAKE_UNSEEN
		awake = p[who].at_once;
#else
		awake = p[who].at_once || (p[who].wake && ends > p[who].seen);
#endif
		if
		:: p[who].wake && awake && !p[who].at_once -> MET(21)
		:: else
		fi;
		wake = p[who].wake && !awake;
		if
		:: p[who].omit -> skipped[p[who].omit]++
		:: else
		fi;
#if !defined(ENTRIES_BEFORE) && !defined(ENTRIES_AFTER)
		create(p[who].make);
#endif
	:: ok && p[who].kind == REMOVE ->
		printf("engine: the plan is removed\n");
		assert(S8 || p[who].at == SENT);
		changed();
		plan = 0; next = 0; buffered = 0; paused = 0; ends = 0; from = 0;
		want = 0
	:: ok && p[who].kind == CREATE ->
		printf("engine: the plan is created\n");
		assert(S8 || p[who].at == SENT);
		changed();
		plan = 1; next = now + 1; from = now + 1;
		want = 0
	:: !ok ->
		if
		:: p[who].kind == SWAP && p[who].at == SENT && !plan -> MET(22)
		:: p[who].kind == SWAP && p[who].at == SENT && plan -> MET(23)
		:: else
		fi
	fi;
	stale(0); stale(1); stale(PAUSER); stale(OWNER)
}

/* A party has its answer. A copy of the request may still be in flight, except that of a create,
 * which no ID distinguishes from a new one. */
inline answered(who) {
	p[who].at = IDLE;
#ifdef STALE_MATTERS
#ifndef CREATE_OUTLIVES
	if
	:: p[who].kind == CREATE -> forget(who)
	:: else
	fi
#endif
#else
	forget(who) /* a copy that is not fresh has no effect */
#endif
}

inline send(who) {
#ifdef SEEN_LATE
	p[who].seen = ends;
#endif
	p[who].running = 0;
	p[who].kind = SWAP;
	p[who].at = SENT;
	stale(who)
}

proctype Worker(byte me) {
end:	do
	/* Store.Claim. Its lease only avoids duplicate work of the other worker. */
	:: d_step { p[me].at == IDLE && claimable && !(me == 1 && dead) ->
		printf("worker %d: claims the plan\n", me);
		if
		:: leased -> MET(24)
		:: else
		fi;
		read(me);
		leased = 1; out = 0; holder = me;
		verify() }
	/* Store.Get of the previous occurrence. */
	:: d_step { p[me].at == READ && !(me == 1 && dead) ->
		p[me].running = unended;
		p[me].at = LOOKED;
		stale(me) }
	/* The buffered occurrence is next. */
	:: d_step { p[me].at == LOOKED && p[me].buffered && !p[me].running && !(me == 1 && dead) ->
		MET(25);
		p[me].make = p[me].buffered;
		p[me].buffered = 0;
		send(me) }
	/* A planned time has come: its occurrence is created, */
	:: d_step { p[me].at == LOOKED && !p[me].buffered && !p[me].running && p[me].next <= now && !(me == 1 && dead) ->
		p[me].make = p[me].next;
		p[me].next++;
		send(me) }
	/* or buffered, */
	:: d_step { p[me].at == LOOKED && !p[me].buffered && p[me].running && p[me].next <= now && !(me == 1 && dead) ->
		p[me].buffered = p[me].next;
		p[me].next++;
		p[me].wake = 1;
		send(me) }
	/* or skipped. */
	:: d_step { p[me].at == LOOKED && !(p[me].buffered && !p[me].running) && p[me].next <= now && !(me == 1 && dead) ->
		p[me].omit = p[me].next;
		p[me].next++;
		p[me].wake = (p[me].buffered != 0);
		send(me) }
	/* There is nothing to do yet. */
	:: d_step { p[me].at == LOOKED && !(p[me].buffered && !p[me].running) && p[me].next > now && !(me == 1 && dead) ->
		p[me].wake = (p[me].buffered != 0);
		send(me) }
#ifdef ENTRIES_BEFORE
	/* The occurrence is created by a call before the swap. */
	:: d_step { p[me].at == SENT && p[me].make && !(me == 1 && dead) ->
		create(p[me].make); p[me].make = 0; verify() }
#define sent (p[me].at == SENT && !p[me].make && !(me == 1 && dead))
#elif defined(ENTRIES_AFTER)
	/* The occurrence is created by a call after the swap. */
	:: d_step { p[me].at == IDLE && p[me].make && !(me == 1 && dead) ->
		create(p[me].make); p[me].make = 0; verify() }
#define sent (p[me].at == SENT && !(me == 1 && dead))
#else
#define sent (p[me].at == SENT && !(me == 1 && dead))
#endif
	/* Store.SwapPlans, with its reply; or without, so that it will be repeated. */
	:: d_step { sent -> arrives(me); answered(me); ok = 0; verify() }
	:: d_step { sent && faults < FAULTS && p[me].fresh -> faults++; arrives(me); ok = 0; verify() }
	/* Store.End: the plan is retried, so that it is due a little later. */
	:: d_step { (p[me].at == READ || p[me].at == LOOKED) && faults < FAULTS && !(me == 1 && dead) ->
		faults++;
		printf("worker %d: retries\n", me);
		if
		:: leased && holder == me -> leased = 0; out = 0; holder = 0; awake = 1
		:: else
		fi;
		forget(me);
		verify() }
	/* The worker crashes, and another replaces it. The sent request may arrive. */
	:: d_step { p[me].at != IDLE && faults < FAULTS && !(me == 1 && dead) ->
		faults++;
		printf("worker %d: crashes\n", me);
		if
		:: p[me].at == SENT -> p[me].at = IDLE
		:: else -> forget(me)
		fi }
#ifdef PROGRESS
	/* Worker 1 dies. */
	:: d_step { me == 1 && !dead ->
		printf("worker 1: dies\n");
		dead = 1;
		if
		:: p[1].at == SENT -> p[1].at = IDLE
		:: else -> forget(1)
		fi }
#endif
	od
}

/* A client that creates the plan, and pauses and resumes it. An update of its definition does the
 * same: it leaves next and buffered unchanged. */
#define pauses(how) \
	d_step { p[PAUSER].at == READ -> \
		printf("client: sets paused to %d\n", how); \
		p[PAUSER].paused = how; \
		resumes(); \
		want = 0; \
		send(PAUSER) }

/* The end for which the buffered occurrence waits may have happened: a worker must check. */
inline resumes() {
#ifdef UPDATE_SEES
	p[PAUSER].wake = (p[PAUSER].buffered != 0)
#else
	p[PAUSER].at_once = (p[PAUSER].buffered && !p[PAUSER].paused)
#endif
}

proctype Pauser() {
end:	do
	:: d_step { p[PAUSER].at == IDLE && plan && calls < CALLS -> calls++; read(PAUSER) }
	:: pauses(0)
	:: pauses(1)
	:: d_step { p[PAUSER].at == IDLE && !plan && calls < CALLS ->
		calls++;
		printf("client: creates\n");
		deleted = 0;
		forget(PAUSER);
		p[PAUSER].kind = CREATE;
		p[PAUSER].at = SENT }
	:: d_step { p[PAUSER].at == SENT ->
		arrives(PAUSER);
		if
		:: ok && p[PAUSER].kind == SWAP -> want = paused + 1
		:: else
		fi;
		answered(PAUSER);
		ok = 0;
		verify() }
	:: d_step { p[PAUSER].at == SENT && faults < FAULTS && (p[PAUSER].fresh || p[PAUSER].kind == CREATE) -> faults++; arrives(PAUSER); ok = 0; verify() }
	od
}

/* A client that deletes the plan. */
proctype Owner() {
end:	do
	:: d_step { p[OWNER].at == IDLE && plan && calls < CALLS ->
		calls++;
		printf("owner: deletes\n");
		read(OWNER);
		p[OWNER].kind = REMOVE;
		p[OWNER].at = SENT }
	/* A lost delete is prepared again, until the plan is removed. */
	:: d_step { p[OWNER].at == SENT ->
		arrives(OWNER);
		if
		:: ok || !plan ->
			deleted = !(p[PAUSER].at == SENT && p[PAUSER].kind == CREATE);
			answered(OWNER)
		:: else ->
			MET(26);
			read(OWNER);
			p[OWNER].kind = REMOVE;
			p[OWNER].at = SENT
		fi;
		ok = 0;
		verify() }
	:: d_step { p[OWNER].at == SENT && faults < FAULTS && p[OWNER].fresh ->
		faults++; arrives(OWNER); ok = 0; verify() }
	od
}

/* Spontaneous events. */
#define copy(who) \
	d_step { p[who].at == IDLE && p[who].kind -> \
		printf("engine: a copy of what %d has sent arrives\n", who); \
		arrives(who); \
		forget(who); \
		ok = 0; \
		verify() }
#define ends_of(time) \
	d_step { live[time] -> \
		printf("engine: occurrence %d ends\n", time); \
		live[time] = 0; \
		noted(); \
		verify() }

/* The end of an occurrence is noted in the plan's History, and wakes the plan. */
inline noted() {
	if
	:: plan ->
		ends++;
		if
		:: wake && !leased -> wake = 0; awake = 1; MET(27)
		:: leased -> MET(28)
		:: else
		fi
	:: else
	fi
}

proctype World() {
end:	do
	:: d_step { now < TIMES -> now++; printf("clock: %d\n", now) }
	:: d_step { leased && !out -> printf("engine: the lease expires\n"); out = 1 }
	:: copy(0)
	:: copy(1)
#if defined(WAS_IGNORED) || defined(DELETE_BLIND)
	:: copy(PAUSER)
	:: copy(OWNER)
#elif defined(CREATE_OUTLIVES)
	:: copy(PAUSER)
#endif
	:: ends_of(1)
	:: ends_of(2)
	:: ends_of(3)
	od
}

init {
	atomic {
		run Worker(0);
		run Worker(1);
		run Pauser();
		run Owner();
		run World()
	}
}

#ifdef PROGRESS
/* Worker 0 lives, so no planned time stays due and no occurrence stays buffered forever. This
 * claim accepts the runs that violate that. */
#define stuck (plan && !paused && (next <= now || (buffered && !unended)))
never {
	do
	:: stuck -> break
	:: true
	od;
accept:	do
	:: stuck
	od
}
#endif
