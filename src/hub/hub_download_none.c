/* A build without libcurl. */
#include "hub/hub_download.h"

bool hub_download_is_built(void) {
    return false;
}

enum status hub_download(struct hub_settings *settings, const struct hub_wish *wish,
                         const struct hub_watch *watch, struct err *err) {
    (void)settings, (void)watch;
    return err_set(err, ERR_UNSUPPORTED,
                   "%s is not in the Hugging Face cache, and this build of nanovllm has no libcurl "
                   "to download it with: hf download %s gets it",
                   wish->name->id, wish->name->id);
}
