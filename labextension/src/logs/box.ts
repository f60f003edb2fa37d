/** The box of log lines: equal lines of ranks are folded; it follows the newest unless scrolled. */
import { h, setAttribute, setHidden, setText, smallButton } from '../dom/dom.js';
import { formatClock } from '../model/format.js';
import type { ITrans } from '../model/trans.js';
import { Folding, ranksText, type IFolded } from './folding.js';
import type { ILogLine } from '../model/answers.js';

const NEAR_PX = 24; // distance from the end that counts as at the end
const SCROLL_KEYS = ['ArrowUp', 'ArrowDown', 'PageUp', 'PageDown', 'Home', 'End', ' '];

export class LogBox {
  readonly node: HTMLElement;
  /** Scrolls to the newest line. */
  readonly toEnd: HTMLButtonElement;

  constructor(
    private readonly _trans: ITrans,
    onToEnd: () => void
  ) {
    const label = _trans.__('Printed lines');
    this.node = h('div.det-log-lines', { role: 'log', tabindex: 0, 'aria-label': label });
    this.toEnd = smallButton(_trans.__('To the end'), onToEnd, { hidden: true });
    this.node.addEventListener('scroll', () => this._onScroll());
    this.node.addEventListener('keydown', event => {
      if (SCROLL_KEYS.includes(event.key)) {
        event.stopPropagation(); // notebooks move between cells with these keys
      }
    });
  }

  clear(): void {
    this._nodes.clear();
    this._folding.clear();
    this.node.replaceChildren();
    this._isAtEnd = true;
  }

  draw({ added, gone }: { added: ILogLine[]; gone: ILogLine[] }): void {
    const height = this.node.scrollHeight;
    for (const { id } of gone) {
      const fold = this._folding.drop(id);
      if (fold !== null) {
        this._nodes.get(fold)?.remove();
        this._nodes.delete(fold);
      }
    }
    const lost = height - this.node.scrollHeight;
    added.forEach(line => this._add(this._folding.add(line)));
    if (this._isAtEnd) {
      this.goToEnd();
    } else {
      this.node.scrollTop -= lost; // keeps the visible lines in place
    }
  }

  goToEnd(): void {
    this._setAtEnd(true);
    this.node.scrollTop = this.node.scrollHeight;
  }

  /** Scroll to a line and mark it; returns whether it is in the box. */
  show(id: number): boolean {
    const fold = this._folding.of(id);
    const node = fold && this._nodes.get(fold);
    if (node === undefined) {
      return false;
    }
    this._setAtEnd(false);
    this.node.scrollTop = node.offsetTop - this.node.clientHeight / 3;
    node.classList.add('det-mod-found');
    return true;
  }

  private _add(fold: IFolded): void {
    const node = this._nodes.get(fold);
    if (node === undefined) {
      const { line } = fold;
      const made = h(
        'div.det-log-line',
        { 'data-level': line.level, title: this._title(fold) },
        h('span.det-quiet', {}, this._place(fold)),
        line.text
      );
      this._nodes.set(fold, made);
      this.node.append(made);
    } else {
      setText(node.firstElementChild as Element, this._place(fold));
      setAttribute(node, 'title', this._title(fold));
    }
  }

  private _place({ line, ranks }: IFolded): string {
    const place =
      ranks.length === 1
        ? this._trans.__('trial %1 rank %2', line.trial_id, line.rank)
        : this._trans.__('trial %1 ×%2 ranks', line.trial_id, ranks.length);
    return `${formatClock(line.at)} ${place} `;
  }

  private _title({ line, ranks }: IFolded): string {
    const who = this._trans._n('rank %2', 'ranks %2', ranks.length, ranksText(ranks));
    return line.level === null ? who : `${line.level}, ${who}`;
  }

  private _onScroll(): void {
    const { scrollHeight, scrollTop, clientHeight } = this.node;
    this._setAtEnd(scrollHeight - scrollTop - clientHeight < NEAR_PX);
  }

  private _setAtEnd(isAtEnd: boolean): void {
    this._isAtEnd = isAtEnd;
    setHidden(this.toEnd, isAtEnd);
  }

  private readonly _nodes = new Map<IFolded, HTMLElement>();
  private readonly _folding = new Folding();
  private _isAtEnd = true;
}
