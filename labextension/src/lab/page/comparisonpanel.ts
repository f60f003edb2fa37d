/** The page of a comparison, in the main area. */
import { formatClock } from '../../model/format.js';
import type { IComparisonState } from '../../model/state.js';
import type { IComparisonDrawn } from './drawing.js';
import { missingText } from './feed.js';
import { comparisonIcon } from './pageicons.js';
import { Panel, type Drawing, type IPanelOptions } from './pagepanel.js';

export class ComparisonPanel extends Panel {
  constructor(
    options: IPanelOptions,
    readonly experimentIds: readonly number[]
  ) {
    const { trans } = options.shared;
    const ids = experimentIds.join(', ');
    super(options, trans.__('Loading the comparison of experiments %1…', ids));
    this.addClass('jp-DetComparisonPage');
    this.title.icon = comparisonIcon;
    this.title.label = trans.__('Compare %1', ids);
    this.title.caption = trans.__('Experiments %1 side by side', ids);
  }

  protected override _onLink(): void {
    const { state: link } = this._options.shared.link;
    this._sayHowOld(link === 'up' ? '' : this._since());
  }

  protected override _open(drawing: Drawing): void {
    this._own(
      this._options.shared.socket.follow(
        'comparison',
        { experiment_ids: [...this.experimentIds] },
        state => this._onState(drawing, state),
        sentence => this._onOver(sentence)
      )
    );
  }

  private _onState(drawing: Drawing, state: IComparisonState): void {
    const { shared, looks } = this._options;
    if (this._drawn === undefined) {
      const name = `compare:${this.experimentIds.join(',')}`;
      this._drawn = this._own(drawing.drawComparison({ shared, looks, name }));
      this._host.append(this._drawn.node);
    }
    this._asOf = state.as_of;
    this.title.caption = state.title;
    this._drawn.update(state);
    this._say('');
  }

  private _onOver(sentence: string): void {
    const why = missingText(this._options.shared, this.experimentIds) || sentence;
    this._say([this._since(), why].join(' ').trim());
  }

  private _sayHowOld(sentence: string): void {
    if (this._drawn !== undefined) {
      this._say(sentence);
    }
  }

  private _since(): string {
    const { trans } = this._options.shared;
    return this._asOf === null
      ? ''
      : trans.__('Not live: this is as of %1.', formatClock(this._asOf));
  }

  private _drawn: IComparisonDrawn | undefined;
  private _asOf: number | null = null;
}
