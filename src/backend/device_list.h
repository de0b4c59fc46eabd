/* The kinds of devices that run models: one line each, here. Everything else asks the list. CMake
 * reads the names from it as well (cmake/devices.cmake).
 *
 * DEVICE(name): the files of src/backend/<name>/ define device_<name>. device.cmake there builds
 * them; toolchain.cmake, if there is one, finds what they need. A build may leave a device out:
 * device.cmake then builds a device_<name> that refuses, so that the option says why. The option's
 * own text is in include/nanovllm.h, and a test sees that it names every device. */
#ifndef BACKEND_DEVICE_LIST_H
#define BACKEND_DEVICE_LIST_H

#include "backend/backend.h"
#include "backend/gpu_choice.h"

// In the order in which `auto` asks whether one is there.
#define DEVICE_LIST(DEVICE)                                                                        \
    DEVICE(cuda)                                                                                   \
    DEVICE(cpu)

enum { DEVICE_TEXT_BYTES = 160 };

// Of the environment. `name` is NULL where there is none.
struct device_variable {
    const char *name, *value;
};

struct device_kind {
    const char *name; // of the option: "cuda"
    const char *title; // for people: "GPU"
    bool has_numbers; // there may be several, "cuda:N"
    // Makes a start with one such device shorter. A program may set it before the first call.
    struct device_variable variable;
    // OK where the program has the backend and there is a device that it can use. Otherwise
    // ERR_UNSUPPORTED says which of them is missing. A device that is present but broken is OK
    // here: create reports it.
    enum status (*available)(struct err *err);
    // Device number `number` for people: "NVIDIA H100, 80 GiB, compute capability 9.0". Leaves
    // `text` empty if there is no such device.
    enum status (*describe)(uint32_t number, char text[DEVICE_TEXT_BYTES], struct err *err);
    // With has_numbers on the one that gpu_choice.h gives to options->rank_on_host.
    enum status (*create)(struct backend **out, const struct backend_options *options,
                          struct err *err);
};

#define DEVICE_DECLARED(NAME) extern const struct device_kind device_##NAME;
DEVICE_LIST(DEVICE_DECLARED)

// [device_list_count], in the list's order.
const struct device_kind *device_list_get(uint32_t i);
uint32_t device_list_count(void);
// The kind that an option's value names: "cpu", "cuda", "cuda:0,2". NULL: none. `auto` and NULL are
// the first kind that is available.
const struct device_kind *device_list_find(const char *device);

#endif
