/** The importance of the hyperparameters: a bar for each, with its share in words. */
import { h, rebuilder, setHidden } from '../dom/dom.js';
import { formatPercent } from '../model/format.js';
import type { IImportance } from '../model/state.js';
import type { ITrans } from '../model/trans.js';

export class ImportanceBars {
  readonly node: HTMLElement;

  constructor(trans: ITrans) {
    this.node = h(
      'section.det-importance',
      { hidden: true, 'aria-label': trans.__('Importance of hyperparameters') },
      h('b', {}, trans.__('Importance')),
      this._bars,
      this._sentence
    );
  }

  update(importance: IImportance | null): void {
    setHidden(this.node, importance === null);
    if (importance !== null) {
      this._draw(importance);
    }
  }

  private readonly _bars = h('ul.det-shares');
  private readonly _sentence = h('p.det-quiet');
  private readonly _draw = (importance: IImportance): void => {
    this._rebuildBars(importance);
    this._rebuildSentence(importance);
  };
  private readonly _rebuildSentence = rebuilder(this._sentence, ({ sentence }: IImportance) => [
    sentence
  ]);
  private readonly _rebuildBars = rebuilder(this._bars, ({ shares }: IImportance) =>
    shares.map(({ name, share }) => {
      const bar = h('i', { 'aria-hidden': 'true' });
      bar.style.width = `${share * 100}%`;
      return h(
        'li',
        {},
        h('span', {}, name),
        h('span.det-share', {}, bar),
        h('span.det-number', {}, formatPercent(share))
      );
    })
  );
}
