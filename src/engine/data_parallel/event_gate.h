/* Where the engines of a group, each on a thread of its own, wait to deliver events. A program
 * expects events only while it is inside a call that delivers them, and one at a time. So the gate
 * is open while such a call waits, and closes behind each engine that goes through. */
#ifndef ENGINE_DATA_PARALLEL_EVENT_GATE_H
#define ENGINE_DATA_PARALLEL_EVENT_GATE_H

#include <pthread.h>
#include <stdbool.h>

#include "base/err.h"

struct event_gate {
    bool is_ready; // init has succeeded
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_open; // the program is inside a call that delivers events: for one engine
    bool stays_open;
    bool is_taken; // an engine delivers events
    unsigned num_passed; // how often an engine has left it
    unsigned num_rings;
};

MUST_USE enum status event_gate_init(struct event_gate *gate, struct err *err);
void event_gate_fini(struct event_gate *gate); // all-zero is fine

// ---- the engines' threads ----

// Returns when the gate is open and no other engine is inside. NULL: there is no gate.
void event_gate_enter(struct event_gate *gate);
void event_gate_leave(struct event_gate *gate); // rings
// There is news: ends event_gate_wait. Any thread.
void event_gate_ring(struct event_gate *gate);

// ---- the program's thread ----

// Opens the gate for one engine, until somebody has rung since *num_rings, which becomes the new
// count, or until `deadline` on the clock of clock_seconds (below 0: there is none). No engine is
// inside when it returns.
void event_gate_wait(struct event_gate *gate, unsigned *num_rings, double deadline);
// Opens the gate for good: the group is about to end.
void event_gate_open(struct event_gate *gate);
// How often engines have delivered events, or could have.
unsigned event_gate_num_passed(struct event_gate *gate);

#endif
