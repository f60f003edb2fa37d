/** A section of the sidebar: tracks whether it is visible, and shows a text when it is empty. */
import { Widget } from '@lumino/widgets';

import { h, setAttribute, setHidden, setText } from '../../dom/dom.js';

/** The content of an empty section. */
export interface IEmpty {
  /** '' for no text: the section has no height then. */
  text: string;
  /** A cell to run; a button beside it inserts it. */
  cell?: string;
  button?: { text: string; onClick: () => void };
}

export class Section extends Widget {
  constructor(
    id: string,
    label: string,
    private readonly _onSeen: (isSeen: boolean) => void
  ) {
    super();
    this.id = `det-jupyter-sidebar-${id}`;
    this.title.label = label;
    this.addClass('jp-DetSection');
    this.node.append(this.body, this._empty);
  }

  /** Called when its needed height may have changed. */
  onNeed: () => void = () => undefined;

  /** The height of the body without scrolling, in pixels. */
  bodyHeight: () => number = () => contentHeight(this.body);

  /** The needed height in pixels; 0 for the header alone. */
  get need(): number {
    const body = this.body.hidden ? 0 : Math.max(1, this.bodyHeight());
    return body + (this._empty.hidden ? 0 : contentHeight(this._empty));
  }

  /** The element for the content. */
  readonly body = h('div.det-section-body');

  get isSeen(): boolean {
    return this._isSeen;
  }

  /** Check again whether it is visible. */
  look(): void {
    const isSeen = this.isAttached && this.isVisible && !document.hidden;
    if (isSeen !== this._isSeen) {
      this._isSeen = isSeen;
      this._onSeen(isSeen);
    }
  }

  /** Show a text for an empty section; `null`: show the body. `keepsBody`: show both. */
  showEmpty(empty: IEmpty | null, keepsBody = false): void {
    setHidden(this.body, empty !== null && !keepsBody);
    setHidden(this._empty, empty === null || empty.text === '');
    this.toggleClass('det-mod-bare', empty?.text === '' && !keepsBody);
    this.onNeed();
    const wanted = JSON.stringify(empty);
    if (empty === null || wanted === this._shown) {
      return;
    }
    this._shown = wanted;
    const { text, cell, button } = empty;
    const parts: HTMLElement[] = [h('p', {}, text)];
    if (button !== undefined) {
      const node = h('button.det-side-button', { type: 'button' }, button.text);
      node.addEventListener('click', button.onClick);
      parts.push(node); // the button is above the cell, which may be higher than the section
    }
    if (cell !== undefined) {
      parts.push(h('pre', { tabindex: 0 }, cell));
    }
    this._empty.replaceChildren(...parts);
  }

  /** Set the count beside the title, and its tooltip. */
  setCount(title: HTMLElement | undefined, text: string, tooltip: string): void {
    if (title !== undefined && this._count.parentElement !== title) {
      title.append(this._count);
    }
    setText(this._count, text);
    setAttribute(this._count, 'title', tooltip || null);
  }

  protected override onAfterShow(): void {
    this.look();
  }

  protected override onAfterHide(): void {
    this.look();
  }

  protected override onAfterAttach(): void {
    this.look();
  }

  protected override onAfterDetach(): void {
    this.look();
  }

  private readonly _empty = h('div.det-section-empty', { hidden: true });
  private readonly _count = h('span.det-section-count');
  private _isSeen = false;
  private _shown = '';
}

/** The height of an element's content. */
export function contentHeight(element: HTMLElement): number {
  const last = element.lastElementChild;
  if (!(last instanceof HTMLElement)) {
    return 0;
  }
  const { marginBottom } = getComputedStyle(last);
  const { paddingBottom } = getComputedStyle(element);
  const below = (parseFloat(marginBottom) || 0) + (parseFloat(paddingBottom) || 0);
  return Math.ceil(
    last.getBoundingClientRect().bottom -
      element.getBoundingClientRect().top +
      element.scrollTop +
      below
  );
}
