/* libcurl and OpenSSL's libcrypto, opened when something is downloaded. They are not linked: a
 * program that downloads nothing does not load them and their dependencies, packages run without
 * them, and TLS uses the certificates of the system that runs it. */
#ifndef HUB_HUB_LIBRARY_H
#define HUB_HUB_LIBRARY_H

#define CURL_DISABLE_TYPECHECK // its macros stand in the way of function pointers
#include <curl/curl.h>
#include <openssl/evp.h>

#include "base/err.h"

#define HUB_CURL_FUNCTIONS(FUNCTION)                                                               \
    FUNCTION(curl_global_init)                                                                     \
    FUNCTION(curl_easy_init)                                                                       \
    FUNCTION(curl_easy_setopt)                                                                     \
    FUNCTION(curl_easy_getinfo)                                                                    \
    FUNCTION(curl_easy_strerror)                                                                   \
    FUNCTION(curl_easy_cleanup)                                                                    \
    FUNCTION(curl_slist_append)                                                                    \
    FUNCTION(curl_slist_free_all)                                                                  \
    FUNCTION(curl_multi_init)                                                                      \
    FUNCTION(curl_multi_add_handle)                                                                \
    FUNCTION(curl_multi_remove_handle)                                                             \
    FUNCTION(curl_multi_perform)                                                                   \
    FUNCTION(curl_multi_poll)                                                                      \
    FUNCTION(curl_multi_info_read)                                                                 \
    FUNCTION(curl_multi_strerror)                                                                  \
    FUNCTION(curl_multi_cleanup)

#define HUB_CRYPTO_FUNCTIONS(FUNCTION)                                                             \
    FUNCTION(EVP_MD_CTX_new)                                                                       \
    FUNCTION(EVP_MD_CTX_free)                                                                      \
    FUNCTION(EVP_sha1)                                                                             \
    FUNCTION(EVP_sha256)                                                                           \
    FUNCTION(EVP_DigestInit_ex)                                                                    \
    FUNCTION(EVP_DigestUpdate)                                                                     \
    FUNCTION(EVP_DigestFinal_ex)

// Each function under its own name: library->curl_easy_init().
#define HUB_FUNCTION_POINTER(name) __typeof__(&(name)) name;
struct hub_library {
    HUB_CURL_FUNCTIONS(HUB_FUNCTION_POINTER)
    HUB_CRYPTO_FUNCTIONS(HUB_FUNCTION_POINTER)
};

// ERR_UNSUPPORTED: a library is not installed, and the error says which. They stay open until the
// process ends.
MUST_USE enum status hub_library_open(struct hub_library *library, struct err *err);

#endif
