/* The sysfs tree that the shim shows the application. */
#ifndef SOFTMLX5_SYSFS_H
#define SOFTMLX5_SYSFS_H

#include <stdbool.h>

/* Write it under DIR/sys; false, with a message, when that cannot be. */
bool sysfs_write(const char *dir);

#endif
