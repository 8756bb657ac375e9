// Package live learns what no file of sysfs tells about this machine: DCB, PFC
// and trust over netlink, ethtool, addresses and routes, limits, libraries and
// launchers found; the GPU driver's and second opinions, through the helper. It
// writes facts as
// snapshot sections that package discover parses like everything else.
package live
