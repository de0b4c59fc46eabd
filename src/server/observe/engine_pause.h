/* Whether the engine's thread may step: pause, single steps, resume. For the page's engine room.
 *
 * A pause must not outlive its viewer: engine_pause_end ends it, and is called when nobody watches
 * any more and when the server ends. */
#ifndef SERVER_ENGINE_PAUSE_H
#define SERVER_ENGINE_PAUSE_H

#include <stdbool.h>
#include <stdint.h>

struct engine_pause;

struct engine_pause *engine_pause_create(void); // not paused; NULL: no memory
void engine_pause_destroy(struct engine_pause *pause); // NULL is fine

// Any thread.
void engine_pause_begin(struct engine_pause *pause);
// So many more steps; it is paused before and after them.
void engine_pause_allow(struct engine_pause *pause, uint32_t num_steps);
void engine_pause_end(struct engine_pause *pause);
bool engine_pause_is_on(struct engine_pause *pause);

// The engine's thread. While paused it waits up to ENGINE_PAUSE_WAIT_MS, so that aborts are still
// seen. True: one step may run, or there is none to run.
enum { ENGINE_PAUSE_WAIT_MS = 20 };
bool engine_pause_may_step(struct engine_pause *pause, bool has_work);

#endif
