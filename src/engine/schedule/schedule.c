#include "engine/schedule/schedule.h"

#include <stdlib.h>

#include "base/check.h"

enum status schedule_init(struct schedule *schedule, uint32_t max_items, struct err *err) {
    *schedule = (struct schedule){.max_items = max_items};
    schedule->items = calloc(max_items, sizeof *schedule->items);
    schedule->preempted = calloc(max_items, sizeof *schedule->preempted);
    if (schedule->items && schedule->preempted) return OK;
    schedule_fini(schedule);
    return err_nomem(err, "schedule");
}

void schedule_fini(struct schedule *schedule) {
    free(schedule->items);
    free(schedule->preempted);
    *schedule = (struct schedule){0};
}

void schedule_remove_last(struct schedule *schedule, struct sequence *seq) {
    uint32_t last = --schedule->num_items;
    CHECK(seq->schedule_index == last && seq->is_prefilled && !schedule->num_draft_tokens,
          "item %u, not %u", seq->schedule_index, last);
    schedule->num_decode_tokens--;
    schedule->num_tokens--;
    step_work_take_decode(&schedule->work, schedule->items[last].start);
    seq->schedule_index = SEQUENCE_UNSCHEDULED;
    seq->num_scheduled_tokens = 0;
}
