/**
 * HTTP proxies of the environment, which gRPC goes through: never to this machine, and said where it does.
 *
 * gRPC takes the first of grpc_proxy, https_proxy and http_proxy that is set; no_grpc_proxy, else no_proxy, lists what is
 * reached without: ends of names, and networks.
 */

import { BlockList, isIP } from "node:net";

const VARIABLES = ["grpc_proxy", "https_proxy", "http_proxy"];
const LOOPBACK = new BlockList();
LOOPBACK.addSubnet("127.0.0.0", 8, "ipv4");
LOOPBACK.addAddress("::1", "ipv6");

/** The host of [SCHEME:]HOST[:PORT], without brackets. */
export function hostOf(address: string): string {
  const target = address.replace(/^(dns:\/\/\/|dns:|ipv4:|ipv6:)/, "");
  const colon = target.lastIndexOf(":");
  return (colon > 0 ? target.slice(0, colon) : target).replace(/^\[|\]$/g, "");
}

/** Whether an address is this machine's alone: a socket in the file system, or on loopback. */
export function isHere(address: string): boolean {
  const host = hostOf(address);
  if (host === "localhost" || address.startsWith("unix:")) {
    return true;
  }
  const version = isIP(host);
  return version !== 0 && LOOPBACK.check(host, version === 4 ? "ipv4" : "ipv6");
}

/** The variable whose proxy a connection to an address goes through, "" for none. */
export function proxyVariable(address: string, environment = process.env): string {
  const name = VARIABLES.find((each) => environment[each]) ?? "";
  return name && !isHere(address) && !isException(hostOf(address), environment) ? name : "";
}

function isException(host: string, environment: NodeJS.ProcessEnv): boolean {
  const listed = (environment.no_grpc_proxy ?? environment.no_proxy ?? "").split(",").map((each) => each.trim());
  return listed.some((each) => each !== "" && (host.endsWith(each) || isIn(host, each)));
}

function isIn(host: string, network: string): boolean {
  const [address = "", bits] = network.split("/");
  if (isIP(host) === 0 || isIP(host) !== isIP(address) || bits === undefined) {
    return false;
  }
  const kind = isIP(host) === 4 ? "ipv4" : "ipv6";
  const block = new BlockList();
  block.addSubnet(address, Number(bits), kind);
  return block.check(host, kind);
}
