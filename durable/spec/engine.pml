/*
 * The engine: its state for one key, and the effects of calls of store.Store. timer.pml has the
 * processes that make the calls. Most assertions are here; those on D5 that depend on the caller
 * are there.
 */

/* The state of a timer by the history of calls. The engine does not read it. */
#define NEW       0 /* not scheduled, or lost in a fail-over */
#define LIVE      1 /* must be in one state */
#define MARKED    2 /* leased, and Cancel answered Running */
#define CANCELLED 3 /* Cancel answered Cancelled, or Running to its predecessor */
#define ENDED      4 /* done, replaced, or removed after MARKED */

/* The engine's state of the shard, which a fail-over rolls back. */
typedef Shard {
	bit waiting, leased, dead; /* the states */
	byte body;                 /* the ID in that state; 0: none */
	byte succ;                 /* leased: the ID of its successor; 0: none */
	byte attempts;             /* at most ATTEMPTS are counted */
	byte fence, token;         /* leased: of the lease */
	bit cancelled;             /* leased */
	bit out;                   /* leased: the lease has expired */
	byte last;                 /* the last issued fence */
	byte log;                  /* the highest number of the client's changes that were carried out */
	byte open;                 /* a bit for each lower number that was in flight with it, and was
	                            * not carried out yet */
#ifdef KINDS
	byte kept[3];              /* by kind: the number of the last change */
	byte floor;                /* the highest of the smallest numbers in flight */
#endif

	byte highest;              /* of the history: the fence of the last lease */
	byte status[SCHEDULES + 1];  /* of the history: NEW to ENDED, by ID */
	byte past;                 /* of the history: a bit for each number that must not take effect
	                            * any more */
};

Shard s;

/* Outcome.Kind. In a model without time Snooze equals Release. */
#define DONE        0
#define RETRY       1
#define RELEASE     2
#define DEAD_LETTER 3

byte leases;   /* granted leases: the next number is an unused token */

/* The state of a worker, which has one slot. */
#define IDLE    0
#define CLAIMS  1 /* Claim was sent and carried out; the reply has not arrived */
#define HOLDS   2 /* it has the lease; the handler was not called */
#define RUNS    3 /* the handler runs */
#define ENDS    4 /* End was sent and carried out; the reply has not arrived */

typedef Slot {
	byte at;           /* IDLE to ENDS */
	byte id;           /* of the timer */
	byte fence, token; /* of the lease */
	bit valid;         /* by the worker's own clock the lease has not expired */
};

Slot w[2];

/* Always 0: they name the assertions in the output of pan. */
bit D1, D4, D5, D8, D9, LATE;

/* Temporary within one step; 0 between steps. */
byte i, old, next, was, answer;

#define NOTFOUND 0
#define REMOVED  1 /* the answer Cancelled */
#define RUNNING  2

/* With -DWITNESS, pan prints the situations that it met: see check.sh. */
#ifdef WITNESS
#define MET(n) c_code { static int met; if (!met++) printf("met %d\n", n); }
#else
#define MET(n) skip
#endif

/* Whether a claim can lease the timer, or only ends its expired lease. */
#define leasable (leases < LEASES && (s.waiting || (s.leased && s.out && !clearable)))
#define clearable (s.leased && s.out && (s.cancelled || s.succ || s.attempts >= ATTEMPTS))

/* A handler runs under a valid lease. */
#define running(n) (w[n].at == RUNS && w[n].valid)

/* Holds after every step. */
inline verify() {
	assert(D1 || s.waiting + s.leased + s.dead == (s.body != 0));
	assert(D1 || s.succ == 0 || s.leased);
	for (i : 1 .. SCHEDULES) {
		assert(D1 || (s.body == i) + (s.succ == i) == (s.status[i] == LIVE || s.status[i] == MARKED))
	}
	assert(D4 || !running(0) || s.status[w[0].id] != CANCELLED);
	assert(D4 || !running(1) || s.status[w[1].id] != CANCELLED);
	assert(D8 || !running(0) || !running(1));
	i = 0
}

inline unlease() {
	s.leased = 0;
	s.succ = 0;
	s.fence = 0;
	s.token = 0;
	s.cancelled = 0;
	s.out = 0;
}

/* No timer in any state. */
inline clear() {
	s.waiting = 0;
	s.leased = 0;
	s.dead = 0;
	s.body = 0;
	s.attempts = 0;
	s.status[0] = NEW;
	unlease()
}

#define bitof(n) (1 << (n))

/* Calls whose deadline has passed, by the engine's clock. No fail-over rolls that back. */
byte over;

/* Whether the engine carries out the request of a change of a kind, by its log. A request that was
 * carried out before gets the same answer again, which is not a step. */
#if defined(SCHEDULE_TWICE)
#define unheard(n, kind) (!(s.past & bitof(n)) || s.status[n] != NEW)
#elif defined(SCHEDULE_OVERTAKEN)
#define unheard(n, kind) ((n) != s.log)
#elif defined(LATE_BY_KIND)
#define unheard(n, kind) (kind == kindof(n) && (n) > s.kept[kind])
#elif defined(LATE_BY_FLOOR)
#define unheard(n, kind) (kind == kindof(n) && (n) > s.kept[kind] && (n) >= s.floor)
#else
#define unheard(n, kind) ((n) > s.log || (s.open & bitof(n)))
#endif
#ifdef LATE_FOR_OTHERS
#define admitted(n, kind) unheard(n, kind)
#else
#define admitted(n, kind) (unheard(n, kind) && !(over & bitof(n)))
#endif

/* A change of the client is carried out. left has the lower numbers whose calls had not returned
 * when its own began, and perhaps others that are already in past. All lower numbers that are not
 * in left must not take effect from now on. */
inline change(number, kind, left) {
	assert(LATE || !(s.past & bitof(number)));
	if
	:: number < s.log -> MET(15)
	:: number > s.log && (~s.past & ~(left) & (bitof(number) - 2)) -> MET(7)
	:: else
	fi;
#ifdef KINDS
	s.kept[kind] = number;
	if
	:: (left) & 2 -> i = 1
	:: !((left) & 2) && ((left) & 4) -> i = 2
	:: else -> i = number
	fi;
	if
	:: i > s.floor -> s.floor = i
	:: else
	fi;
	i = 0;
#endif
	s.past = s.past | bitof(number) | (~(left) & (bitof(number) - 2));
	if
	:: number > s.log -> s.log = number; s.open = ~s.past & (bitof(number) - 2)
	:: else -> s.open = s.open & ~bitof(number)
	fi
}

/* Store.Schedule of one Entry, that of the given call. */
inline schedule(call) {
	assert(D8 || s.status[call] == NEW);
	if
	:: s.leased ->
		printf("engine: schedule %d succeeds %d\n", call, s.body);
#ifdef SUCCESSOR_BESIDE
		s.status[s.body] = ENDED;
		s.waiting = 1;
		s.body = call;
#else
		s.status[s.succ] = ENDED;
		s.succ = call;
#endif
	:: else ->
		printf("engine: schedule %d waits\n", call);
		s.status[s.body] = ENDED;
		s.dead = 0;
		s.waiting = 1;
		s.body = call;
		s.attempts = 0;
	fi;
	s.status[0] = NEW;
	s.status[call] = LIVE;
	verify()
}

/* Store.Cancel of one key. */
inline cancel() {
	if
#ifdef CANCEL_REMOVES
	:: s.waiting || s.leased ->
#else
	:: s.waiting ->
#endif
		printf("engine: cancel removes %d\n", s.body);
		s.status[s.body] = CANCELLED;
		s.status[s.succ] = CANCELLED;
		clear();
		answer = REMOVED;
#ifndef CANCEL_REMOVES
	:: s.leased ->
		printf("engine: cancel marks %d\n", s.body);
		s.status[s.body] = MARKED;
		s.status[s.succ] = CANCELLED;
		s.status[0] = NEW;
		s.cancelled = 1;
		s.succ = 0;
		answer = RUNNING;
#endif
	:: else ->
		answer = NOTFOUND;
	fi;
	verify()
}

/* Store.Claim: a lease is granted to the worker that drew the token. */
inline lease(drawn) {
	assert(D4 || s.status[s.body] == LIVE);
#if defined(CLAIM_FORGOTTEN)
	assert(D9 || w[_pid].at == CLAIMS);
#endif
#ifdef FENCE_KEPT
	if
	:: s.waiting -> s.last++
	:: else
	fi;
#else
	s.last++;
#endif
	assert(D5 || s.last > s.highest);
	s.highest = s.last;
	unlease();
	s.waiting = 0;
	s.leased = 1;
	s.fence = s.last;
	s.token = drawn;
	leases++;
	if
	:: s.attempts < ATTEMPTS -> s.attempts++
	:: else
	fi;
	verify()
}

#ifdef CANCELLED_RETRIED
#define removed(how) (next || how == DONE)
#else
#define removed(how) (s.cancelled || next || how == DONE)
#endif

/* A run ends: by Store.End, or when a claim ends an expired lease. */
inline finish(how, dropped) {
	old = s.body;
	next = s.succ;
	was = s.status[old];
	if
	:: was == MARKED || next || how == DONE -> s.status[old] = ENDED
	:: else
	fi;
	if
	:: removed(how) && (next == 0 || (dropped)) ->
		printf("engine: %d is removed\n", old);
		clear()
	:: removed(how) && !(next == 0 || (dropped)) ->
		printf("engine: %d is removed, %d waits\n", old, next);
		clear();
		s.waiting = 1;
		s.body = next;
	:: !removed(how) && how == DEAD_LETTER ->
		printf("engine: %d is dead\n", old);
		unlease();
		s.dead = 1;
	:: else ->
		printf("engine: %d waits again\n", old);
		if
		:: how == RELEASE -> s.attempts--
		:: else
		fi;
		unlease();
		s.waiting = 1;
	fi;
	assert(D4 || was != MARKED || s.body != old);
	assert(D8 || next == 0 || (s.waiting && s.body == next));
	old = 0; next = 0; was = 0;
	verify()
}
