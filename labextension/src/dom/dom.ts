/** Makes and changes elements. Text is always inserted as text, never as markup. */

type Child = Node | string | null;
const CODE = /`([^`]+)`/g;
type Attributes = Record<string, string | number | boolean | null>;

/** Make an element; `name` may have classes: `div.det-a.det-b`. */
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

/** An SVG of one path, hidden from screen readers: a text is always beside it. */
export function drawing(attributes: Attributes, path: Attributes): SVGSVGElement {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  const line = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  svg.append(line);
  Object.entries({ 'aria-hidden': 'true', ...attributes }).forEach(one =>
    setAttribute(svg, ...one)
  );
  Object.entries(path).forEach(one => setAttribute(line, ...one));
  return svg;
}

export function smallButton(
  label: string,
  onClick: () => void,
  attributes: Attributes = {}
): HTMLButtonElement {
  const button = h('button.det-button.det-mod-small', { type: 'button', ...attributes }, label);
  button.addEventListener('click', onClick);
  return button;
}

interface ITable {
  caption?: string;
  head: string[];
  /** The first of each row is its heading. */
  rows: string[][];
  isNumber: (column: number) => boolean;
}

/** A table in a scrolling box. */
export function dataTable({ caption, head, rows, isNumber }: ITable): HTMLElement {
  const cell = (
    tag: 'th' | 'td',
    text: string,
    column: number,
    scope: string | null
  ): HTMLElement => h(isNumber(column) ? `${tag}.det-number` : tag, { scope }, text);
  const lines = rows.map(([first = '', ...rest]) =>
    h(
      'tr',
      {},
      cell('th', first, 0, 'row'),
      ...rest.map((text, i) => cell('td', text, i + 1, null))
    )
  );
  return h(
    'div.det-table-box',
    { tabindex: 0 },
    h(
      'table.det-table',
      {},
      caption === undefined ? null : h('caption', {}, caption),
      h('thead', {}, h('tr', {}, ...head.map((text, i) => cell('th', text, i, 'col')))),
      h('tbody', {}, ...lines)
    )
  );
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

/** Set an element's text; an equal text keeps the user's selection. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

/** The children that show a sentence whose code is between backticks. */
export function prose(sentence: string): Child[] {
  return sentence.split(CODE).map((part, i) => (i % 2 === 0 ? part : h('code', {}, part)));
}

/** A sentence as plain text, where there is no markup: its code without backticks. */
export function plain(sentence: string): string {
  return sentence.replace(CODE, '$1');
}

/** As `setText`, for a sentence whose code is between backticks. */
export function setProse(element: Element, sentence: string): void {
  if (element.textContent !== plain(sentence)) {
    element.replaceChildren(...prose(sentence).filter(child => child !== null));
  }
}

export function setHidden(element: HTMLElement, hidden: boolean): void {
  element.hidden = hidden;
}

/** The element with the focus, also in a shadow root, in which some hosts put widgets. */
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
