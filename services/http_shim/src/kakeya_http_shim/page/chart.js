// Lines and bars over uPlot, in the colours of the page.

const HEIGHT = 190;

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A chart that is as wide as its parent and draws itself anew when the colours change.
export class Chart {
  #parent;
  #options;
  #plot = null;
  #data = null;

  // options: of uPlot, given the colours; without a size.
  constructor(parent, options) {
    this.#parent = parent;
    this.#options = options;
    new ResizeObserver(() => this.#plot?.setSize(this.#size())).observe(parent);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#drawAnew());
  }

  show(data) {
    this.#data = data;
    if (this.#plot) this.#plot.setData(data);
    else this.#drawAnew();
  }

  #drawAnew() {
    if (!this.#data) return;
    this.#plot?.destroy();
    this.#plot = new globalThis.uPlot({ ...this.#options(color), ...this.#size() }, this.#data, this.#parent);
  }

  #size() {
    return { width: Math.max(200, this.#parent.clientWidth), height: HEIGHT };
  }
}

// An axis; what it says is made of a number by `say`.
export function axis(color, scale, say, more = {}) {
  return {
    scale,
    stroke: color("--quiet"),
    font: "11px system-ui, sans-serif",
    size: 58,
    grid: { stroke: color("--line"), width: 1 },
    ticks: { show: false },
    values: (_, all) => all.map((each) => (each === null ? "" : say(each))),
    ...more,
  };
}
