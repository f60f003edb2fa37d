/** The page of a comparison, in the main area. */
import { formatClock } from '../../model/format.js';
import type { IComparisonState } from '../../model/state.js';
import type { IDocuments, IFollowed } from '../tokens.js';
import type { Drawing } from './pagepanel.js';
import type { IComparisonDrawn } from './drawing.js';
import { missingText } from './feed.js';
import { comparisonIcon } from './pageicons.js';
import { Panel, type IPanelOptions } from './pagepanel.js';

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
    this._opened = this._open();
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this._followed?.dispose();
      this._drawn?.dispose();
      super.dispose();
    }
  }

  /** Resolves when it follows the comparison, or has failed to. */
  get opened(): Promise<void> {
    return this._opened;
  }

  protected override _onLink(): void {
    const { state: link } = this._options.shared.link;
    this._sayHowOld(link === 'up' ? '' : this._since());
  }

  private async _open(): Promise<void> {
    const drawing = await this._load();
    if (drawing !== null) {
      this._followed = this._options.shared.socket.follow(
        'comparison',
        { experiment_ids: [...this.experimentIds] },
        state => this._onState(drawing, state),
        sentence => this._onOver(sentence)
      );
    }
  }

  private _onState(drawing: Drawing, state: IComparisonState): void {
    const { shared, looks } = this._options;
    if (this._drawn === undefined) {
      const name = `compare:${this.experimentIds.join(',')}`;
      this._drawn = drawing.drawComparison({ shared, looks, name });
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

  private readonly _opened: Promise<void>;
  private _followed: IFollowed<IDocuments['comparison']['args']> | undefined;
  private _drawn: IComparisonDrawn | undefined;
  private _asOf: number | null = null;
}
