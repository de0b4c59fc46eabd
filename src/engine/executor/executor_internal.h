/* What the kinds of executor have in common. A kind's struct begins with struct executor. */
#ifndef ENGINE_EXECUTOR_EXECUTOR_INTERNAL_H
#define ENGINE_EXECUTOR_EXECUTOR_INTERNAL_H

#include "base/thread/interrupt.h"
#include "engine/executor/executor.h"

// executor.h has the contracts.
struct executor_ops {
    // Called with this process's weights loaded. Ends early when the interrupt asks for it.
    enum status (*wait_ready)(struct executor *executor, const struct interrupt *interrupt,
                              struct err *err);
    struct batch_header *(*batch)(struct executor *executor, uint32_t slot);
    enum status (*warm_up)(struct executor *executor, struct batch *batch, struct err *err);
    void (*begin_counts)(struct executor *executor, uint32_t slot, const int32_t *ids,
                         uint32_t num_prompt, uint32_t num_ids);
    enum status (*launch)(struct executor *executor, const struct batch *batch, uint32_t slot,
                          struct model_runner_times *times, struct err *err);
    enum status (*sample)(struct executor *executor, const struct batch *batch, uint32_t slot,
                          struct model_runner_times *times, struct err *err);
    enum status (*wait)(struct executor *executor, uint32_t slot,
                        const struct sample_result **results,
                        const struct sample_result **prompt_results, struct err *err);
    enum status (*check)(struct executor *executor, struct err *err);
    enum status (*blame)(struct executor *executor, enum status status, struct err *err);
    void (*begin_end)(struct executor *executor); // NULL: nothing is to be done
    // Ends the other ranks and frees the executor, whose runner is destroyed already.
    void (*stop)(struct executor *executor);
};

struct executor {
    const struct executor_ops *ops;
    struct engine_plan *plan;
    struct model_runner *runner; // NULL: not loaded, or all ranks are other processes
    struct comm *comm; // where this process's rank meets the others; NULL: it is alone
    struct sample_result *shared_results; // as model_runner_options'
    bool has_rows; // executor_check_rows
};

#endif
