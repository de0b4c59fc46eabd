/* Which drafts an engine makes, by its options, its model and its device. */
#ifndef ENGINE_PLAN_DRAFTS_H
#define ENGINE_PLAN_DRAFTS_H

#include "engine/plan/engine_plan.h"

// Decides plan->drafts and plan->draft_costs. The plan has its model, its backend and
// its weights' formats.
MUST_USE enum status plan_drafts(struct engine_plan *plan,
                                 const struct nvllm_engine_options *options, struct err *err);

#endif
