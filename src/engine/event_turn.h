/* Whose turn it is to deliver events, when several engines run, each on a thread of its own. A
 * program expects events only while it is inside a call that delivers them, and one at a time. So
 * engines wait here until the program waits for events, and then one of them has the turn. */
#ifndef ENGINE_DATA_PARALLEL_EVENT_TURN_H
#define ENGINE_DATA_PARALLEL_EVENT_TURN_H

#include <pthread.h>
#include <stdbool.h>

#include "base/err.h"

struct event_turn {
    bool is_ready; // init has succeeded
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_open; // the program is inside a call that delivers events: for one engine
    bool stays_open;
    bool is_taken; // an engine delivers events
    unsigned num_passed; // how many turns have ended
    unsigned num_signals;
};

MUST_USE enum status event_turn_init(struct event_turn *turn, struct err *err);
void event_turn_fini(struct event_turn *turn); // all-zero is fine

// ---- the engines' threads ----

// Waits until the program waits for events and no other engine has the turn. Without a deadline:
// the program decides when it wants events, and event_turn_open ends the wait. NULL: returns at
// once.
void event_turn_enter(struct event_turn *turn);
void event_turn_leave(struct event_turn *turn); // signals
// There is news; ends event_turn_wait. Any thread.
void event_turn_signal(struct event_turn *turn);

// ---- the program's thread ----

// Lets one engine at a time have the turn while it waits. Returns when somebody has signalled since
// *num_signals, which becomes the new count, or at `deadline` on the clock of clock_seconds (below
// 0: none). If an engine has the turn then, it first finishes its callbacks. So after the return no
// engine has it.
void event_turn_wait(struct event_turn *turn, unsigned *num_signals, double deadline);
// Lets every engine take turns from now on: the group is about to end.
void event_turn_open(struct event_turn *turn);
// How often engines have delivered events, or could have.
unsigned event_turn_num_passed(struct event_turn *turn);

#endif
