#include "engine/plan/target_itl.h"

#include <string.h>

#include "base/log.h"
#include "base/text/c_locale.h"

static const double auto_seconds = 0.04;

// params.c has checked that `text` is auto, off or a time that is allowed.
static void read_text(struct pace_options *out, const char *text) {
    *out = (struct pace_options){.pace = PACE_OFF, .part_min = PACER_PART_MIN};
    if (strcmp(text, "off") == 0) return;
    out->pace = PACE_AUTO;
    out->target_seconds = auto_seconds;
    if (strcmp(text, "auto") == 0) return;
    out->pace = PACE_TARGET;
    out->target_seconds = c_locale_strtod(text, NULL) / 1000;
}

enum status target_itl_read(struct pace_options *out, const struct nvllm_engine_options *options,
                            struct err *err) {
    read_text(out, options->target_itl);
    if (out->pace == PACE_OFF || strcmp(options->schedule, "mixed") == 0) return OK;
    if (out->pace == PACE_AUTO) {
        out->pace = PACE_OFF;
        return OK;
    }
    return err_set(err, ERR_UNSUPPORTED,
                   "target_itl is %s, but schedule is %s: only mixed runs parts of prompts beside "
                   "decodes",
                   options->target_itl, options->schedule);
}

void target_itl_tell_missed(const struct pace_options *options, double seconds) {
    log_write(
        LOG_NOTICE,
        "target_itl is %.10g milliseconds, but steps with prompts take about %.3g, with parts "
        "of %u tokens: tokens come later than that",
        options->target_seconds * 1000, seconds * 1000, options->part_min);
}
