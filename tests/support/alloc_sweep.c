#include "support/alloc_hook.h"
#include "support/cmocka_all.h"

// Runs the work once with the n-th allocation failing. False if it made fewer than n allocations.
static bool run_failing(const struct alloc_sweep *sweep, size_t n, bool all_after) {
    struct err err = {0};
    long live_before = alloc_hook_live();
    alloc_hook_fail_at(n, all_after);
    enum status status = sweep->work(sweep->context, &err);
    alloc_hook_disarm();
    bool failed = alloc_hook_has_failed();
    const char *how = all_after ? "allocation and all later ones" : "allocation alone";
    long leaked = alloc_hook_live() - live_before;
    if (leaked != 0)
        fail_msg("%zu. %s failing: %ld blocks or pages stay allocated", n, how, leaked);
    if (!failed) {
        if (status != OK) fail_msg("no allocation failed, yet: %s", err.message);
        return false;
    }
    if (status == OK && !sweep->may_survive) fail_msg("%zu. %s failing goes unnoticed", n, how);
    if (status != OK && status != ERR_NOMEM) {
        fail_msg("%zu. %s failing is reported as %s: %s", n, how, status_name(status), err.message);
    }
    if (status != OK && err.message[0] == '\0') fail_msg("%zu. %s failing: no message", n, how);
    return true;
}

size_t alloc_sweep_run(const struct alloc_sweep *sweep) {
    // Two runs without failures: the first one may fill caches that stay (locale, once-only
    // tables).
    struct err err = {0};
    if (sweep->work(sweep->context, &err) != OK) fail_msg("before the sweep: %s", err.message);
    alloc_hook_reset();
    long live_before = alloc_hook_live();
    if (sweep->work(sweep->context, &err) != OK) fail_msg("before the sweep: %s", err.message);
    size_t num_allocations = alloc_hook_count();
    long leaked = alloc_hook_live() - live_before;
    if (leaked != 0) fail_msg("without any failure %ld blocks or pages stay allocated", leaked);

    for (size_t n = 1;;) {
        bool alone = run_failing(sweep, n, false);
        bool all_after = run_failing(sweep, n, true);
        if (!alone && !all_after) break;
        n += 1 + (sweep->stride ? n / sweep->stride : 0);
    }
    return num_allocations;
}
