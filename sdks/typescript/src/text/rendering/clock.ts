/** The time as Python's `strftime` writes it, in English. */

const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS = [
  ...["January", "February", "March", "April", "May", "June"],
  ...["July", "August", "September", "October", "November", "December"],
];
const DIRECTIVE = /%(-?)([aAbBdHIjmMpSyYZ%])/g;

/** A time in a form such as `%d %B %Y`; directives that are not known stay as they are. */
export function strftime(time: Date, form: string): string {
  return form.replace(DIRECTIVE, (_, isBare: string, directive: string) => {
    const text = part(time, directive);
    return isBare ? text.replace(/^0+(?=\d)/, "") : text;
  });
}

function part(time: Date, directive: string): string {
  const two = (value: number): string => String(value).padStart(2, "0");
  const day = DAYS[time.getDay()] ?? "";
  const month = MONTHS[time.getMonth()] ?? "";
  const beginning = Date.UTC(time.getFullYear(), 0, 1);
  const parts: Record<string, string> = {
    a: day.slice(0, 3),
    A: day,
    b: month.slice(0, 3),
    B: month,
    d: two(time.getDate()),
    H: two(time.getHours()),
    I: two(time.getHours() % 12 || 12),
    j: String((Date.UTC(time.getFullYear(), time.getMonth(), time.getDate()) - beginning) / 86_400_000 + 1).padStart(
      3,
      "0",
    ),
    m: two(time.getMonth() + 1),
    M: two(time.getMinutes()),
    p: time.getHours() < 12 ? "AM" : "PM",
    S: two(time.getSeconds()),
    y: two(time.getFullYear() % 100),
    Y: String(time.getFullYear()),
    Z: "", // as Python has it for a time without a zone
    "%": "%",
  };
  return parts[directive] ?? "";
}
