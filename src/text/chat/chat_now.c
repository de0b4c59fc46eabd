#include "text/chat/chat_now.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/json/jread.h"

void chat_now_clock(struct chat_now *now) {
    *now = (struct chat_now){0};
    struct timespec time = {0};
    clock_gettime(CLOCK_REALTIME, &time);
    localtime_r(&time.tv_sec, &now->options.now);
    now->options.now.tm_gmtoff = 0;
    now->options.now.tm_zone = NULL;
    now->options.microsecond = (int32_t)(time.tv_nsec / 1000);
}

struct cursor {
    const char *at, *end;
};

static bool take(struct cursor *c, char want) {
    if (c->at == c->end || *c->at != want) return false;
    c->at++;
    return true;
}

// Takes exactly `num_digits` digits; false unless their number is in [min, max].
static bool take_number(struct cursor *c, int num_digits, int min, int max, int *out) {
    int number = 0;
    for (int i = 0; i < num_digits; i++) {
        if (c->at == c->end || *c->at < '0' || *c->at > '9') return false;
        number = number * 10 + (*c->at++ - '0');
    }
    *out = number;
    return number >= min && number <= max;
}

static int days_of_month(int year, int month) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return days[month - 1] + (leap && month == 2);
}

static bool take_date(struct cursor *c, struct tm *tm) {
    int year, month, day;
    if (!take_number(c, 4, 1, 9999, &year) || !take(c, '-')) return false;
    if (!take_number(c, 2, 1, 12, &month) || !take(c, '-')) return false;
    if (!take_number(c, 2, 1, days_of_month(year, month), &day)) return false;
    tm->tm_year = year - 1900;
    tm->tm_mon = month - 1;
    tm->tm_mday = day;
    return true;
}

// Digits beyond the sixth are dropped, as in Python.
static bool take_fraction(struct cursor *c, int32_t *microsecond) {
    int32_t scale = 100000;
    if (c->at == c->end) return false;
    for (int digit; c->at < c->end && take_number(c, 1, 0, 9, &digit); scale /= 10) {
        *microsecond += digit * scale;
    }
    return c->at[-1] >= '0' && c->at[-1] <= '9';
}

static bool take_time(struct cursor *c, struct jinja_render_options *options) {
    struct tm *tm = &options->now;
    if (!take_number(c, 2, 0, 23, &tm->tm_hour) || !take(c, ':')) return false;
    if (!take_number(c, 2, 0, 59, &tm->tm_min)) return false;
    if (!take(c, ':')) return true;
    if (!take_number(c, 2, 0, 59, &tm->tm_sec)) return false;
    return take(c, '.') ? take_fraction(c, &options->microsecond) : true;
}

// Takes "Z", "+02:00" or "+0200". The zone's name is written as Python does, "UTC+02:00".
static bool take_offset(struct cursor *c, struct chat_now *now) {
    struct tm *tm = &now->options.now;
    int hours = 0, minutes = 0;
    bool zulu = take(c, 'Z'), west = !zulu && take(c, '-');
    if (!zulu && !west && !take(c, '+')) return false;
    if (!zulu) {
        if (!take_number(c, 2, 0, 23, &hours)) return false;
        take(c, ':');
        if (!take_number(c, 2, 0, 59, &minutes)) return false;
    }
    tm->tm_gmtoff = (west ? -1 : 1) * (hours * 3600L + minutes * 60L);
    if (tm->tm_gmtoff == 0) {
        snprintf(now->zone, sizeof now->zone, "UTC");
    } else {
        snprintf(now->zone, sizeof now->zone, "UTC%c%02d:%02d", west ? '-' : '+', hours, minutes);
    }
    tm->tm_zone = now->zone;
    return true;
}

enum status chat_now_parse(struct chat_now *now, const char *text, size_t len, struct err *err) {
    *now = (struct chat_now){0};
    struct cursor c = {text, text + len};
    bool good = take_date(&c, &now->options.now);
    if (good && c.at < c.end) {
        good = (take(&c, 'T') || take(&c, ' ')) && take_time(&c, &now->options);
        if (good && c.at < c.end) good = take_offset(&c, now);
    }
    if (!good || c.at < c.end) {
        return err_set(err, ERR_FORMAT,
                       "\"now\" is \"%.40s\", want a time such as 2026-01-02T03:04:05", text);
    }
    // timegm sets the days of week and year, but drops the zone: give it a copy.
    struct tm day = now->options.now;
    timegm(&day);
    now->options.now.tm_wday = day.tm_wday;
    now->options.now.tm_yday = day.tm_yday;
    return OK;
}

enum status chat_now_read(struct chat_now *now, const json_t *value, struct err *err) {
    if (!value || json_is_null(value)) {
        chat_now_clock(now);
        return OK;
    }
    if (!json_is_string(value)) {
        return err_set(err, ERR_FORMAT, "\"now\" is %s, want a time such as 2026-01-02T03:04:05",
                       jread_type_name(value));
    }
    return chat_now_parse(now, json_string_value(value), json_string_length(value), err);
}
