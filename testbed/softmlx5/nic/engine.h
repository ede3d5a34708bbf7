/* The engine: the loop that is the NIC. */
#ifndef SOFTMLX5_ENGINE_H
#define SOFTMLX5_ENGINE_H

#include <signal.h>
#include "nic.h"

/* Measure what the loop's sleeps cost here. */
void engine_calibrate(void);

/*
 * Serve until *stop is set.  When *reload is set, it is cleared and reload_fn
 * called.
 */
void engine_run(volatile sig_atomic_t *stop, volatile sig_atomic_t *reload,
		void (*reload_fn)(void));

#endif
