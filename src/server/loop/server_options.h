/* The server's options, from `nanovllm serve`. Constant while the server runs. */
#ifndef SERVER_SERVER_OPTIONS_H
#define SERVER_SERVER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum server_log { SERVER_LOG_NONE, SERVER_LOG_TEXT, SERVER_LOG_JSON };
// Whether the engine can be watched, with everybody's tokens, and also paused.
enum engine_room_mode { ENGINE_ROOM_OFF, ENGINE_ROOM_VIEW, ENGINE_ROOM_CONTROL };

struct server_options {
    const char *host; // a name or an address
    uint16_t port; // 0: any free one
    const char *unix_path; // of a Unix socket in place of host and port; NULL: none
    const char *tls_cert_path,
        *tls_key_path; // PEM files; NULL: no TLS; the key may be with the cert
    const char *const *api_keys; // [num_api_keys]; none: everybody may ask
    size_t num_api_keys;
    const char *const *model_names; // [num_model_names], at least one; the first is the answers'
    size_t num_model_names;
    const char *const *allowed_hosts; // [num_allowed_hosts] names in Host beside loopback's
    size_t num_allowed_hosts;
    const char *model_path, *chat_template_path; // not to be seen in answers; may be NULL
    // "auto": by the chat template; "none": calls stay text; else the name of a tool_format.
    const char *tool_call_parser;
    const char *reasoning_parser; // "auto", or "none": reasoning stays in the text
    uint32_t connections_max;
    uint32_t num_senders; // threads that send what a step wrote; 0: as many as fit the machine
    size_t body_bytes_max;
    size_t bodies_bytes_max; // of all requests together; body_bytes_max at least
    bool refuses_unknown; // members of a request: 400; else they are named and ignored
    uint32_t outputs_max; // of one request: prompts times n
    double request_seconds; // a request's whole time at most; 0: any
    double ping_seconds; // of silence, after which a stream has a comment
    double shutdown_seconds; // for requests to end after the first signal
    enum server_log log;
    bool has_page; // at /
    enum engine_room_mode engine_room; // it observes the engine: nobody else can
    // One line of the log with its newline; must not block. On the loop's thread.
    void (*write_log)(const char *line, size_t len, void *user_data);
    // Ready; `url` is where. On the loop's thread.
    void (*on_ready)(const char *url, void *user_data);
    void *user_data;
};

#endif
