/*
 * The sysfs tree.  As in the kernel's, the class directory is a link into a
 * PCI device: UCX identifies the adapter by its real path.
 */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "counters.h"
#include "sysfs.h"

#define PCI  "devices/pci0000:00/" SM5_PCI "/"
#define IB   PCI "infiniband/" SM5_IBDEV "/"
#define PORT IB "ports/1/"
#define UV   "class/infiniband_verbs/"

static const char *root;
static bool failed;

/* The full path of a file to make, with the directories it is to lie in. */
static void make_path(char p[PATH_MAX], const char *path)
{
	snprintf(p, PATH_MAX, "%s/sys/%s", root, path);
	for (char *s = p + strlen(root) + 1; (s = strchr(s, '/')); s++) {
		*s = 0;
		mkdir(p, 0755);
		*s = '/';
	}
}

static void complain(const char *path)
{
	if (!failed)
		fprintf(stderr, "softmlx5d: cannot write %s: %s\n", path, strerror(errno));
	failed = true;
}

static void put(const char *path, const char *fmt, ...)
{
	char p[PATH_MAX];
	va_list ap;
	FILE *f;

	make_path(p, path);
	f = fopen(p, "we");
	if (!f) {
		complain(p);
		return;
	}
	va_start(ap, fmt);
	vfprintf(f, fmt, ap);
	va_end(ap);
	fputc('\n', f);
	if (fclose(f))
		complain(p);
}

static void put_link(const char *path, const char *target)
{
	char p[PATH_MAX];

	make_path(p, path);
	unlink(p);
	if (symlink(target, p))
		complain(p);
}

static void put_device(void)
{
	put(UV "abi_version", "6");
	put(UV SM5_UVERBS "/abi_version", "1");
	put(UV SM5_UVERBS "/dev", "%d:%d", SM5_MAJOR, SM5_MINOR);
	put(UV SM5_UVERBS "/ibdev", SM5_IBDEV);
	put(IB "node_type", "1: CA");
	put(IB "node_desc", "softmlx5");
	put(IB "node_guid", "506b:4b03:00c0:ffee");
	put(IB "sys_image_guid", "506b:4b03:00c0:ffee");
	put(IB "fw_ver", "20.31.2006");
	put(IB "board_id", "SOFT000000001");
	put(IB "hca_type", "MT4123");
	put(IB "hw_rev", "0");
	put(PCI "vendor", "0x%04x", SM5_VENDOR);
	put(PCI "device", "0x%04x", SM5_DEVICE);
	put(PCI "modalias", "pci:v%08Xd%08Xsv%08Xsd%08Xbc02sc07i00", SM5_VENDOR, SM5_DEVICE,
	    SM5_VENDOR, 0x0007);
	put(PCI "numa_node", "-1");
	put(PCI "local_cpulist", "0-%ld", sysconf(_SC_NPROCESSORS_CONF) - 1);
	put(PCI "current_link_width", "16");
	put(PCI "current_link_speed", "16.0 GT/s PCIe");
	put(PCI "max_link_width", "16");
	put(PCI "max_link_speed", "16.0 GT/s PCIe");
	put_link(IB "device", "../../../" SM5_PCI);
	put_link("class/infiniband/" SM5_IBDEV, "../../" PCI "infiniband/" SM5_IBDEV);
}

/* A bit for each CPU, in groups of 32 from the highest: what UCX reads. */
static void put_cpu_mask(void)
{
	long n = sysconf(_SC_NPROCESSORS_CONF);
	char mask[1024] = "";

	for (long word = (n - 1) / 32; word >= 0; word--) {
		long bits = n - word * 32 > 32 ? 32 : n - word * 32;
		size_t len = strlen(mask);

		snprintf(mask + len, sizeof(mask) - len, len ? ",%08x" : "%x",
			 bits == 32 ? ~0u : (1u << bits) - 1);
	}
	put(PCI "local_cpus", "%s", mask);
}

static void put_port(void)
{
	bool eth = param.link == LINK_ETH;

	put(PORT "state", "4: ACTIVE");
	put(PORT "phys_state", "5: LinkUp");
	put(PORT "rate", "100 Gb/sec (4X EDR)");
	put(PORT "lid", "0x%x", eth ? 0 : SM5_LID);
	put(PORT "sm_lid", "0x%x", eth ? 0 : SM5_LID);
	put(PORT "lid_mask_count", "0");
	put(PORT "sm_sl", "0");
	put(PORT "cap_mask", "0x%x", SM5_PORT_CAP);
	put(PORT "link_layer", eth ? "Ethernet" : "InfiniBand");
	put(PORT "gids/0", "fe80:0000:0000:0000:506b:4b03:00c0:ffee");
	put(PORT "pkeys/0", "0xffff");
	put(PORT "gid_attrs/types/0", eth ? "RoCE v2" : "IB/RoCE v1");
}

bool sysfs_write(const char *dir)
{
	char port[PATH_MAX];

	root = dir;
	put_device();
	put_cpu_mask();
	put_port();
	if (!failed) {
		make_path(port, PORT);
		counters_open(port);
	}
	return !failed;
}
