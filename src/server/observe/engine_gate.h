/* Whether the engine's thread may step: pause, step by step, go on. For the page's engine room.
 *
 * A pause must not outlive the one who wants it: engine_gate_open ends it and is called when nobody
 * watches any more, and when the server ends. */
#ifndef SERVER_ENGINE_GATE_H
#define SERVER_ENGINE_GATE_H

#include <stdbool.h>
#include <stdint.h>

struct engine_gate;

struct engine_gate *engine_gate_create(void); // open; NULL: no memory
void engine_gate_destroy(struct engine_gate *gate); // NULL is fine

// Any thread.
void engine_gate_pause(struct engine_gate *gate);
// So many more steps; it is paused before and after them.
void engine_gate_allow(struct engine_gate *gate, uint32_t num_steps);
void engine_gate_open(struct engine_gate *gate);
bool engine_gate_is_paused(struct engine_gate *gate);

// The engine's thread. While paused it waits up to ENGINE_GATE_MS, so that aborts are still seen.
// True: one step may run, or there is none to run.
enum { ENGINE_GATE_MS = 20 };
bool engine_gate_may_step(struct engine_gate *gate, bool has_work);

#endif
