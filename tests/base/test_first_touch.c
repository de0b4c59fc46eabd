// The first touch of new memory: pages are there before they are written, each is taken once, and
// what threads write stays.
#include "base/thread/first_touch.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/os/pages.h"
#include "base/thread/thread_pool.h"
#include "support/cmocka_all.h"

enum { PAGES = 5, ITEM_BYTES = 300 << 10, OFFSET = 64 };

static bool is_there(const char *at) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    unsigned char resident = 0;
    assert_int_equal(mincore((void *)((uintptr_t)at / page * page), page, &resident), 0);
    return resident & 1;
}

// Memory that begins within a page and ends within one.
static char *start(struct first_touch *touch) {
    struct err err = {0};
    char *memory = pages_map(0, (size_t)PAGES * FIRST_TOUCH_PAGE);
    assert_non_null(memory);
    size_t bytes = (size_t)(PAGES - 1) * FIRST_TOUCH_PAGE + ITEM_BYTES;
    if (first_touch_init(touch, memory + OFFSET, bytes, &err) != OK) fail_msg("%s", err.message);
    assert_int_equal(touch->num_pages, PAGES);
    return memory;
}

static void end(struct first_touch *touch, char *memory) {
    first_touch_fini(touch);
    pages_unmap(memory, (size_t)PAGES * FIRST_TOUCH_PAGE);
}

static void test_pages_up_to_the_range(void **state) {
    (void)state;
    struct first_touch touch;
    char *memory = start(&touch);
    first_touch_range(&touch, FIRST_TOUCH_PAGE, FIRST_TOUCH_PAGE); // nothing
    assert_false(is_there(memory));
    // The last byte of page 1 and the first of page 2.
    size_t at = (size_t)2 * FIRST_TOUCH_PAGE - OFFSET;
    first_touch_range(&touch, at - 1, at + 1);
    for (size_t i = 0; i < PAGES; i++) {
        const char *page = memory + i * FIRST_TOUCH_PAGE + (i ? 0 : OFFSET);
        assert_int_equal(is_there(page), i <= 2);
    }
    first_touch_range(&touch, 0, touch.bytes);
    assert_true(is_there(memory + (size_t)(PAGES - 1) * FIRST_TOUCH_PAGE));
    for (size_t i = 0; i < touch.bytes; i++) assert_int_equal(touch.memory[i], 0);
    end(&touch, memory);
}

static void fill_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    struct first_touch *touch = arg;
    size_t begin = (size_t)item * ITEM_BYTES, stop = begin + ITEM_BYTES;
    if (stop > touch->bytes) stop = touch->bytes;
    first_touch_range(touch, begin, stop);
    memset(touch->memory + begin, (int)(item % 100) + 1, stop - begin);
}

static void test_threads_fill_it(void **state) {
    (void)state;
    struct thread_pool *pool = NULL;
    assert_int_equal(thread_pool_create(&pool, 4, NULL), OK);
    struct first_touch touch;
    char *memory = start(&touch);
    uint32_t num_items = (uint32_t)((touch.bytes + ITEM_BYTES - 1) / ITEM_BYTES);
    thread_pool_for(pool, num_items, fill_item, &touch);
    for (size_t i = 0; i < touch.bytes; i++) {
        assert_int_equal(touch.memory[i], (int)(i / ITEM_BYTES % 100) + 1);
    }
    for (size_t i = 0; i < PAGES; i++) assert_int_equal(atomic_load(&touch.touched[i]), 1);
    end(&touch, memory);
    thread_pool_destroy(pool);
}

static void test_no_memory_has_no_pages(void **state) {
    (void)state;
    struct first_touch touch;
    assert_int_equal(first_touch_init(&touch, NULL, 0, NULL), OK);
    first_touch_range(&touch, 0, 0);
    first_touch_fini(&touch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages_up_to_the_range),
        cmocka_unit_test(test_threads_fill_it),
        cmocka_unit_test(test_no_memory_has_no_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
