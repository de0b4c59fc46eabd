#include "server/http/origin.h"

#include <arpa/inet.h>
#include <string.h>

bool host_is_loopback(const char *name, size_t len) {
    char text[64];
    if (len && name[0] == '[' && name[len - 1] == ']') {
        name++;
        len -= 2;
    }
    if (!len || len >= sizeof text) return false;
    memcpy(text, name, len);
    text[len] = '\0';
    for (char *c = text; *c; c++) {
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    }
    struct in_addr v4;
    struct in6_addr v6;
    if (strcmp(text, "localhost") == 0) return true;
    if (inet_pton(AF_INET, text, &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
    return inet_pton(AF_INET6, text, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

size_t host_name(const char *host, const char **name) {
    *name = host;
    if (host[0] == '[') {
        const char *end = strchr(host, ']');
        return end ? (size_t)(end - host) + 1 : strlen(host);
    }
    return strcspn(host, ":");
}

bool origin_is_loopback(const char *origin) {
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        size_t scheme_len = strlen(schemes[i]);
        if (strncmp(origin, schemes[i], scheme_len) != 0) continue;
        const char *name;
        size_t len = host_name(origin + scheme_len, &name);
        const char *rest = name + len;
        bool has_end =
            !*rest || (*rest == ':' && strspn(rest + 1, "0123456789") == strlen(rest + 1));
        return has_end && host_is_loopback(name, len);
    }
    return false;
}
