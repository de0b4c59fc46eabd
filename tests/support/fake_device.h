/* A device for tests: the CPU backend behind a stream that runs nothing until somebody waits, with
 * events, recorded graphs and faults on demand. Linked into a test, it replaces device "cuda". So
 * what the engine does only for a GPU runs on a machine without one.
 *
 * The stream is lazy on purpose. A copy reads host memory as late as a real device may, so memory
 * that is changed or freed too early shows. A graph runs with the pointers and sizes that it was
 * recorded with. Attention takes the block table stride from device memory and the lengths from the
 * step's arrays, as backend.h demands. One device at a time; dense models only. */
#ifndef SUPPORT_FAKE_DEVICE_H
#define SUPPORT_FAKE_DEVICE_H

#include <stddef.h>
#include <stdint.h>

enum fake_fault {
    FAKE_FAULT_NONE,
    // The device breaks for good; the next wait reports it.
    FAKE_FAULT_RUN, // when it runs a command (an op, a copy or a graph)
    FAKE_FAULT_WAIT, // when somebody waits for an event
    // One call fails; the device stays usable.
    FAKE_FAULT_GRAPH_BEGIN,
    FAKE_FAULT_GRAPH_END,
    FAKE_FAULT_CREATE, // device or host memory, or an event
};

struct fake_device_counts {
    long live; // allocations, events and graphs that are not freed yet
    uint32_t num_graphs; // recorded, with those that replaced others
    size_t taken_bytes; // of the memory
    uint32_t num_recorded_cold; // ops recorded before one of their kind had run
    uint32_t num_graph_launches;
    uint32_t num_waits; // for events
    uint32_t num_synchronized; // waits for all that was enqueued
    uint32_t num_given_back_early; // memory freed with commands still to run
};

// Resets everything. There is no fault until fake_device_fail_at.
void fake_device_reset(void);
// The n-th (1: the next) occasion of that kind will fail.
void fake_device_fail_at(enum fake_fault fault, uint32_t n);
int fake_device_has_failed(void); // whether the fault has happened
// What the device has in all; allocations, matrices and the KV cache take their bytes of it.
void fake_device_set_memory(size_t bytes);
void fake_device_set_graph_bytes(size_t bytes); // what a recorded step takes; 0 at first
// What the n-th recording (1: the first) and those after it take, in place of the above.
void fake_device_set_later_graph_bytes(uint32_t n, size_t bytes);
void fake_device_set_timing(void); // linears say that they were timed
struct fake_device_counts fake_device_counts(void);

#endif
