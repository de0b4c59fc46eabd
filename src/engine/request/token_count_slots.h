/* Which sequence has which slot of the backend's token counts (backend.h). There are as many slots
 * as sequences can be active, so an active one that needs a slot always gets one. A preempted
 * sequence keeps its slot, and its counts stay right, until an active one needs it. */
#ifndef ENGINE_TOKEN_COUNT_SLOTS_H
#define ENGINE_TOKEN_COUNT_SLOTS_H

#include "engine/request/request.h"

struct token_count_slots {
    struct request **owners; // [num_slots] of slot i + 1; NULL: free
    uint32_t num_slots, num_owned;
    uint32_t next; // where the next search begins, so that it is usually short
};

MUST_USE enum status token_count_slots_init(struct token_count_slots *slots, uint32_t num_slots,
                                            struct err *err);
void token_count_slots_fini(struct token_count_slots *slots); // all-zero is fine
// Gives an active request a slot (request->counts_slot). The caller then begins its counts.
void token_count_slots_take(struct token_count_slots *slots, struct request *request);
void token_count_slots_give_back(struct token_count_slots *slots,
                                 struct request *request); // none is fine

#endif
