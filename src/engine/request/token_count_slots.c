#include "engine/request/token_count_slots.h"

#include <stdlib.h>

#include "base/check.h"

enum status token_count_slots_init(struct token_count_slots *slots, uint32_t num_slots,
                                   struct err *err) {
    *slots = (struct token_count_slots){.num_slots = num_slots};
    slots->owners = calloc(num_slots, sizeof *slots->owners);
    return slots->owners ? OK : err_nomem(err, "token counts");
}

void token_count_slots_fini(struct token_count_slots *slots) {
    free(slots->owners);
    *slots = (struct token_count_slots){0};
}

// Finds a free slot, else one whose owner is preempted. There is one: as many slots as active
// requests, and this active request has none.
static uint32_t find_slot(struct token_count_slots *slots) {
    bool any_free = slots->num_owned < slots->num_slots;
    for (uint32_t tried = 0; tried < slots->num_slots; tried++) {
        uint32_t i = slots->next;
        const struct request *owner = slots->owners[i];
        slots->next = i + 1 < slots->num_slots ? i + 1 : 0;
        if (any_free ? !owner : owner->seq->status != SEQUENCE_RUNNING) return i;
    }
    CHECK(false, "%u active sequences have token counts", slots->num_slots);
    return 0;
}

void token_count_slots_take(struct token_count_slots *slots, struct request *request) {
    uint32_t i = find_slot(slots);
    if (slots->owners[i]) {
        slots->owners[i]->counts_slot = 0;
    } else {
        slots->num_owned++;
    }
    slots->owners[i] = request;
    request->counts_slot = i + 1;
}

void token_count_slots_give_back(struct token_count_slots *slots, struct request *request) {
    if (!request->counts_slot) return;
    slots->owners[request->counts_slot - 1] = NULL;
    slots->num_owned--;
    request->counts_slot = 0;
}
