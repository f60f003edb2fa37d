/** Says that the view has lost its kernel, and which line brings it back. */
import { formatClock } from '../model/format.js';
import type { ITrans } from '../model/trans.js';
import { h, setHidden, setText } from './dom.js';

export class Lost {
  readonly node: HTMLElement;

  constructor(private readonly _trans: ITrans) {
    const line = h('code', {}, '%load_ext det_jupyter');
    this.node = h('div.det-lost', { role: 'status', hidden: true }, h('p', {}, this._text, line));
  }

  /** The kernel is gone, and the view is as of `asOf`. */
  show(asOf: number, isOver: boolean): void {
    const words = isOver
      ? 'Not live: the kernel that drew this is gone. To connect the view again, run '
      : 'Not live: the kernel that drew this is gone, and this is as of %1. The experiment does ' +
        'not need that kernel. To follow it again, run ';
    setText(this._text, this._trans.__(words, formatClock(asOf)));
    setHidden(this.node, false);
  }

  hide(): void {
    setHidden(this.node, true);
  }

  private readonly _text = h('span');
}
