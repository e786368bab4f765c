// Numbers as people read them.

const COUNT = new Intl.NumberFormat("en");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export const count = (number) => COUNT.format(number);

export function bytes(number) {
  let unit = 0;
  while (number >= 1024 && unit < UNITS.length - 1) {
    number /= 1024;
    unit += 1;
  }
  return `${number < 10 && unit > 0 ? number.toFixed(1) : Math.round(number)} ${UNITS[unit]}`;
}

export function seconds(number) {
  if (number < 0.001) return `${(number * 1e6).toFixed(0)} µs`;
  if (number < 1) return `${(number * 1000).toFixed(number < 0.01 ? 1 : 0)} ms`;
  if (number < 60) return `${number.toFixed(number < 10 ? 1 : 0)} s`;
  if (number < 3600) return `${Math.floor(number / 60)} min`;
  if (number < 86_400) return `${Math.floor(number / 3600)} h`;
  return `${Math.floor(number / 86_400)} d`;
}
