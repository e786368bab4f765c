// Elements, made and changed without a library; nothing is parsed as HTML.

export const byId = (id) => document.getElementById(id);

export function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Has a list show one element for each item, in their order; elements are kept as long as their items are there.
export class KeyedList {
  #parent;
  #create;
  #update;
  #elements = new Map();

  constructor(parent, create, update) {
    this.#parent = parent;
    this.#create = create;
    this.#update = update;
  }

  show(items, keyOf) {
    const shown = new Map();
    let place = this.#parent.firstChild;
    for (const item of items) {
      const key = keyOf(item);
      const element = this.#elements.get(key) ?? this.#create(item);
      shown.set(key, element);
      this.#update(element, item);
      if (element === place) place = place.nextSibling;
      else this.#parent.insertBefore(element, place);
    }
    for (const [key, element] of this.#elements) if (!shown.has(key)) element.remove();
    this.#elements = shown;
  }
}

// Calls `draw` once before the next picture, however often it is asked to.
export function drawn(draw) {
  let isDue = false;
  return () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      draw();
    });
  };
}
