/** Makes and changes elements. Text only ever goes in as text, never as markup. */

type Child = Node | string | null;
type Attributes = Record<string, string | number | boolean | null>;

/** Make an element; `name` may carry classes: `div.det-a.det-b`. */
export function h<K extends keyof HTMLElementTagNameMap>(
  name: K | `${K}.${string}`,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const [tag, ...classes] = name.split('.');
  const element = document.createElement(tag as K);
  if (classes.length > 0) {
    element.className = classes.join(' ');
  }
  for (const [key, value] of Object.entries(attributes)) {
    setAttribute(element, key, value);
  }
  element.append(...children.filter(child => child !== null));
  return element;
}

/** Set an attribute, or remove it for `null` and `false`; `true` sets it empty. */
export function setAttribute(
  element: Element,
  key: string,
  value: string | number | boolean | null
): void {
  if (value === null || value === false) {
    element.removeAttribute(key);
  } else if (element.getAttribute(key) !== String(value === true ? '' : value)) {
    element.setAttribute(key, value === true ? '' : String(value));
  }
}

/** Change an element's text, leaving a reader's selection alone when nothing changed. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

export function setHidden(element: HTMLElement, hidden: boolean): void {
  element.hidden = hidden;
}

/** The element with the focus, also inside a shadow root, where some hosts put widgets. */
export function focusedIn(container: Element): Element | null {
  const root = container.getRootNode() as Partial<Document | ShadowRoot>;
  const active = root.activeElement ?? null;
  return container.contains(active) ? active : null;
}

/**
 * Returns a function that rebuilds the children of `parent` when the data they show changed, and
 * else leaves them, with the reader's selection and focus, alone.
 */
export function rebuilder<T>(parent: Element, build: (data: T) => Child[]): (data: T) => void {
  let shown: string | undefined;
  return data => {
    const wanted = JSON.stringify(data);
    if (wanted !== shown) {
      shown = wanted;
      parent.replaceChildren(...build(data).filter(child => child !== null));
    }
  };
}
