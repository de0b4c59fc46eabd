#include "hub/hub_library.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/check.h"

// The names of what Debian calls libcurl4 and libssl3, and then older or other builds of them.
static const char *const curl_names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", NULL};
static const char *const crypto_names[] = {"libcrypto.so.3", "libcrypto.so.1.1", NULL};

static void *open_first(const char *const *names) {
    void *handle = NULL;
    while (*names && !(handle = dlopen(*names++, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE))) continue;
    return handle;
}

// Sets *function, a pointer of `size` bytes.
static bool find(void *handle, const char *name, void *function, size_t size) {
    void *symbol = handle ? dlsym(handle, name) : NULL;
    CHECK(size == sizeof symbol, "size=%zu", size);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

enum status hub_library_open(struct hub_library *library, struct err *err) {
    *library = (struct hub_library){0};
    const char *lacks = NULL;
    void *curl = open_first(curl_names), *crypto = open_first(crypto_names);
#define FIND_CURL(name)                                                                            \
    if (!find(curl, #name, &library->name, sizeof library->name)) lacks = #name;
    HUB_CURL_FUNCTIONS(FIND_CURL)
    if (lacks) {
        return err_set(err, ERR_UNSUPPORTED,
                       "a download needs libcurl (%s, Debian's package libcurl4), which %s%s",
                       curl_names[0], curl ? "lacks " : "is not installed", curl ? lacks : "");
    }
#define FIND_CRYPTO(name)                                                                          \
    if (!find(crypto, #name, &library->name, sizeof library->name)) lacks = #name;
    HUB_CRYPTO_FUNCTIONS(FIND_CRYPTO)
    if (lacks) {
        return err_set(err, ERR_UNSUPPORTED,
                       "a download needs OpenSSL's libcrypto (%s, Debian's package libssl3), which "
                       "%s%s",
                       crypto_names[0], crypto ? "lacks " : "is not installed",
                       crypto ? lacks : "");
    }
    // They stay loaded (RTLD_NODELETE).
    dlclose(curl);
    dlclose(crypto);
    if (library->curl_global_init(CURL_GLOBAL_DEFAULT)) {
        return err_set(err, ERR_UNSUPPORTED, "libcurl could not be started");
    }
    return OK;
}
