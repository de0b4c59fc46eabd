#include "engine/target_itl.h"

#include <string.h>

#include "base/text/c_locale.h"

static const double ms_max = 60000;

// params.c has checked that `text` is auto, off or digits with at most one point.
static enum status read_text(struct pace_options *out, const char *text, struct err *err) {
    *out = (struct pace_options){.pace = PACE_OFF, .part_min = PACER_PART_MIN};
    if (strcmp(text, "off") == 0) return OK;
    out->pace = PACE_AUTO;
    if (strcmp(text, "auto") == 0) return OK;
    double ms = c_locale_strtod(text, NULL);
    if (!(ms > 0 && ms <= ms_max)) {
        return err_set(err, ERR_INVALID,
                       "target_itl is %s, want auto, off or milliseconds above 0, at most %.0f",
                       text, ms_max);
    }
    out->pace = PACE_TARGET;
    out->target_seconds = ms / 1000;
    return OK;
}

enum status target_itl_read(struct pace_options *out, const struct nvllm_engine_options *options,
                            struct err *err) {
    enum status status = read_text(out, options->target_itl, err);
    if (status || out->pace == PACE_OFF || strcmp(options->schedule, "mixed") == 0) return status;
    return err_set(err, ERR_UNSUPPORTED,
                   "target_itl is %s, but schedule is %s: only mixed runs parts of prompts beside "
                   "decodes",
                   options->target_itl, options->schedule);
}
