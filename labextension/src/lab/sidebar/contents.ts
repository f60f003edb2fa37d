/**
 * Fills the sections: collects changes and draws them at most once per frame, and only in visible
 * sections; others are drawn when they become visible.
 */
import { Signal } from '@lumino/signaling';
import type { IDisposable } from '@lumino/disposable';

import { frames } from '../../dom/frames.js';
import type { IDetJupyter, IFollowed } from '../tokens.js';
import { ActiveList } from './activelist.js';
import type { IOperations } from './operations.js';
import { EndedList } from './endedlist.js';
import { labelled, type IEmptyTexts } from './empty.js';
import type { IQuery } from './listing.js';
import type { Memory } from './sidebarstate.js';
import { contentHeight, Section, type IEmpty } from './sidebarsection.js';
import { Usage } from './slotmodel.js';
import { SlotsView } from './slotlist.js';

/** Empty without a text, as the header suffices. */
const NOTHING: IEmpty = { text: '' };

/** Sets the text beside the title of a section. */
type SetCount = (section: Section, text: string, tooltip?: string) => void;

export class Contents implements IDisposable {
  readonly slots: Section;
  readonly active: Section;
  readonly ended: Section;
  readonly activeList: ActiveList;
  readonly endedList: EndedList;
  setCount: SetCount = () => undefined;

  constructor(
    private readonly _det: IDetJupyter,
    operations: IOperations,
    private readonly _memory: Memory,
    private readonly _texts: IEmptyTexts
  ) {
    const { trans } = _det;
    const mayWrite = (): boolean => _det.link.mayWrite;
    this._view = new SlotsView(trans, this._usage, id => operations.open(id));
    this.activeList = new ActiveList(trans, operations, mayWrite, y =>
      this._keepScroll('active', y)
    );
    this.endedList = new EndedList({
      trans,
      operations,
      mayWrite,
      query: this._keptQuery(),
      onQuery: query => this._onQuery(query),
      onScroll: y => this._keepScroll('ended', y)
    });
    this.slots = new Section('slots', trans.__('Slots'), isSeen => this._onSlotsSeen(isSeen));
    this.active = new Section('active', trans.__('Running and waiting'), () => this._ask());
    this.ended = new Section('ended', trans.__('Finished'), () => this._ask());
    this.slots.body.append(this._view.node);
    this.active.body.append(this.activeList.list.node);
    this.ended.body.append(this.endedList.node);
    this.slots.bodyHeight = () => contentHeight(this._view.node);
    this.active.bodyHeight = () => this.activeList.list.height;
    this.ended.bodyHeight = () => this.endedList.height;
    this._resized = new ResizeObserver(() => this.slots.onNeed());
    [...this._view.node.children].forEach(part => this._resized.observe(part));
    _det.experiments.changed.connect(this._onExperiments, this);
    _det.cluster.changed.connect(this._ask, this);
    _det.linkChanged.connect(this._onLink, this);
    _det.settings.changed.connect(this._onSettings, this);
    this._ask();
  }

  /** Restore the state of before a reload of the page. */
  restore(): void {
    const { active, ended } = this._memory.kept.scroll;
    this.activeList.list.scrollTo(active);
    this.endedList.restore(this._keptQuery(), ended);
    this._ask();
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    Signal.clearData(this);
    frames.drop(this._draw);
    this._followed?.dispose();
    this._resized.disconnect();
    this.activeList.list.dispose();
    this.endedList.list.dispose();
  }

  private _onExperiments(_: unknown, ids: readonly number[] | null): void {
    for (const due of [this._dueActive, this._dueEnded]) {
      due.note(ids);
    }
    this._ask();
  }

  /** Permissions may have changed: rows have other buttons. */
  private _onLink(): void {
    this._dueActive.note(null);
    this._dueEnded.note(null);
    this._ask();
  }

  private _ask(): void {
    frames.ask(this._draw);
  }

  /** Folded lists are updated too, as their titles have counts. */
  private readonly _draw = (): void => {
    this._drawCluster();
    this._drawActive();
    this._drawEnded();
  };

  private _drawCluster(): void {
    const { state } = this._det.cluster;
    if (state === null) {
      this.slots.showEmpty(this._connecting());
      return;
    }
    const hasSlots = state.agents.some(({ slots }) => slots.length > 0);
    this.slots.showEmpty(hasSlots ? null : this._texts.noSlots(state.summary));
    this.setCount(this.slots, `${state.num_slots_used}/${state.num_slots}`);
    if (this.slots.isSeen && state !== this._drawnState) {
      this._drawnState = state;
      this._view.update(state);
    }
  }

  private _drawActive(): void {
    const { rows, isReady } = this._det.experiments;
    const ids = this._dueActive.take();
    if (ids !== undefined) {
      this.activeList.update(ids, rows);
    }
    const { count, counts } = this.activeList;
    // At the default width there is room for one number beside the long title.
    const text = count > 0 ? count.toLocaleString() : this._det.trans.__('none');
    this.setCount(this.active, isReady ? text : '', this._countsText(counts));
    const none = rows.size === 0 ? this._texts.first() : NOTHING;
    this.active.showEmpty(!isReady ? NOTHING : count === 0 ? none : null);
    this.active.onNeed();
  }

  private _countsText({ running, waiting, paused }: ActiveList['counts']): string {
    const { trans } = this._det;
    const counts = [
      running > 0 ? trans._n('%1 running', '%1 running', running) : '',
      waiting > 0 ? trans._n('%1 waiting', '%1 waiting', waiting) : '',
      paused > 0 ? trans._n('%1 paused', '%1 paused', paused) : ''
    ];
    return counts.filter(Boolean).join(' · ');
  }

  private _drawEnded(): void {
    const { rows, isReady } = this._det.experiments;
    const ids = this._dueEnded.take();
    if (ids !== undefined) {
      this.endedList.update(ids, rows);
    }
    const { count, numShown, countText } = this.endedList;
    this.setCount(this.ended, !isReady ? '' : count > 0 ? countText : this._det.trans.__('none'));
    const numArchived = rows.size - this.activeList.count - count;
    const none = count === 0 ? this._texts.noneEnded(numArchived) : this._noMatch();
    const empty = !isReady ? NOTHING : numShown > 0 ? null : none;
    this.ended.showEmpty(empty, isReady && count + numArchived > 0);
    this.ended.onNeed();
  }

  private _connecting(): IEmpty {
    return this._texts.connecting(this._det.link.sentence !== '');
  }

  private _noMatch(): IEmpty {
    const { trans } = this._det;
    const onClick = (): void => this.endedList.filters.clear();
    return labelled(trans.__('No match.'), trans.__('Clear the filter'), onClick);
  }

  private _onSlotsSeen(isSeen: boolean): void {
    this._followed?.dispose();
    this._followed = undefined;
    if (isSeen) {
      this._usage.document = null;
      this._followed = this._det.socket.follow('usage', this._usageArgs, usage => {
        this._usage.document = usage;
        frames.ask(this._drawUsage);
      });
    }
    this._ask();
  }

  private readonly _drawUsage = (): void => this._view.drawUsage();

  private get _usageArgs(): { period_s: number } {
    return { period_s: this._det.settings.get('usagePeriod') };
  }

  private _keptQuery(): IQuery {
    const { text, status, labels } = this._memory.kept;
    const { settings } = this._det;
    const [sortBy, showArchived] = [settings.get('sortBy'), settings.get('showArchived')];
    return { text, status, labels, sortBy, showArchived };
  }

  /** Filters are stored with the layout; order and archive are settings. */
  private _onQuery({ text, status, labels, sortBy, showArchived }: IQuery): void {
    const { settings } = this._det;
    this._memory.keep({ text, status, labels: [...labels] });
    if (sortBy !== settings.get('sortBy')) {
      void settings.set('sortBy', sortBy);
    }
    if (showArchived !== settings.get('showArchived')) {
      void settings.set('showArchived', showArchived);
    }
    this._ask();
  }

  private _onSettings(): void {
    const { settings } = this._det;
    const { query } = this.endedList.filters;
    const [sortBy, showArchived] = [settings.get('sortBy'), settings.get('showArchived')];
    if (sortBy !== query.sortBy || showArchived !== query.showArchived) {
      this.endedList.ask({ ...query, sortBy, showArchived });
    }
    this._followed?.change(this._usageArgs);
    this._ask();
  }

  private _keepScroll(list: 'active' | 'ended', y: number): void {
    this._memory.keep({ scroll: { ...this._memory.kept.scroll, [list]: y } });
  }

  private readonly _resized: ResizeObserver;
  private readonly _usage = new Usage();
  private readonly _view: SlotsView;
  private readonly _dueActive = new Due();
  private readonly _dueEnded = new Due();
  private _drawnState: unknown = null;
  private _followed: IFollowed<{ period_s: number }> | undefined;
  private _isDisposed = false;
}

/** The experiments that have changed since they were drawn. */
class Due {
  note(ids: readonly number[] | null): void {
    if (ids === null) {
      this._ids = null;
    } else {
      ids.forEach(id => this._ids?.add(id));
    }
  }

  /** Their ids; `null` for all, undefined for none. */
  take(): Set<number> | null | undefined {
    const ids = this._ids;
    this._ids = new Set();
    return ids?.size === 0 ? undefined : ids;
  }

  private _ids: Set<number> | null = null;
}
