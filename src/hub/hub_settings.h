/* Where models by name lie and come from: the environment variables of huggingface_hub, so that
 * both programs share one cache. The library reads the environment here and nowhere else. */
#ifndef HUB_HUB_SETTINGS_H
#define HUB_HUB_SETTINGS_H

#include <stdbool.h>

#include "base/err.h"
#include "base/os/file.h"

enum { HUB_TOKEN_MAX = 512, HUB_ENDPOINT_MAX = 200, HUB_URL_MAX = 4096 };

struct hub_settings {
    char cache[FILE_PATH_MAX]; // HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub, ...
    char endpoint[HUB_ENDPOINT_MAX]; // HF_ENDPOINT, without a slash at its end
    char token[HUB_TOKEN_MAX]; // HF_TOKEN, else the text of HF_TOKEN_PATH; "": none
    char ca_file[FILE_PATH_MAX]; // SSL_CERT_FILE or another program's name for it; "": the system's
    bool is_offline; // HF_HUB_OFFLINE
    double timeout_seconds; // HF_HUB_DOWNLOAD_TIMEOUT: to connect, and without a byte
};

// Needs a home folder or one of the variables.
MUST_USE enum status hub_settings_read(struct hub_settings *settings, struct err *err);
// Fills in the token, which only a download needs. ERR_INVALID: it has bytes that no token has.
MUST_USE enum status hub_settings_read_token(struct hub_settings *settings, struct err *err);

#endif
