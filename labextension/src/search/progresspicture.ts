/** The picture of the best value so far over time. */
import type { Focus } from './focus.js';
import { formatDuration, formatNumber, spanText } from '../model/format.js';
import type { IImprovement, ISearchState } from '../model/state.js';
import { drawGrid, Stage, type IBrush } from '../dom/stage.js';
import type { ITrans } from '../model/trans.js';
import { placeOn, roomForTicks, ticksOf, upward } from '../model/scales.js';

const HEIGHT = 250;

export class ProgressPicture {
  readonly stage: Stage;

  constructor(
    private readonly _trans: ITrans,
    private readonly _focus: Focus
  ) {
    this.stage = new Stage({
      title: _trans.__('Best so far'),
      height: HEIGHT,
      draw: brush => this._draw(brush),
      onPoint: at => this._point(at === null ? null : this._placeAt(at.x)),
      onClick: at => _focus.choose(this._at(this._placeAt(at.x))?.trial_id ?? null),
      onKey: key => this._onKey(key)
    });
  }

  update(search: ISearchState, elapsedS: number): void {
    this._search = search;
    this._elapsedS = elapsedS;
    const last = search.improvements.at(-1);
    this.stage.describe(
      this._trans.__(
        'Best %1 over time, now %2; arrow keys read it step by step, Enter chooses the trial',
        search.metric,
        last === undefined ? '–' : formatNumber(last.value)
      )
    );
    if (this._cursor === null) {
      this.stage.read(last === undefined ? '' : `${search.metric} ${formatNumber(last.value)}`);
    }
    this.stage.redraw();
  }

  private _at(place: number | null): IImprovement | undefined {
    return place === null ? undefined : this._search?.improvements[place];
  }

  /** The index of the last improvement at or before `x`. */
  private _placeAt(x: number): number | null {
    const place = this._layout?.points.findLastIndex(point => point.x <= x + 6) ?? -1;
    return place === -1 ? null : place;
  }

  private _point(place: number | null): string {
    this._cursor = place;
    const shown = this._at(place) ?? this._search?.improvements.at(-1);
    const text = shown === undefined ? '' : this._text(shown, place !== null);
    this.stage.read(text);
    this._focus.point(this._at(place)?.trial_id ?? null);
    this.stage.redraw();
    return text;
  }

  private _text({ after_s, value, trial_id }: IImprovement, isWhole: boolean): string {
    const best = `${this._search?.metric ?? ''} ${formatNumber(value)}`;
    return isWhole
      ? `${best} · ${this._trans.__('trial %1 after %2', trial_id, formatDuration(after_s))}`
      : best;
  }

  private _onKey(key: string): boolean {
    const last = (this._search?.improvements.length ?? 0) - 1;
    const now = this._cursor ?? last + 1;
    const wanted: Record<string, number> = {
      ArrowLeft: now - 1,
      ArrowRight: now + 1,
      Home: 0,
      End: last
    };
    const next = wanted[key];
    if (next !== undefined && last >= 0) {
      this.stage.speak(this._point(Math.min(last, Math.max(0, next))));
      return true;
    }
    if ((key === 'Enter' || key === ' ') && this._cursor !== null) {
      this._focus.choose(this._at(this._cursor)?.trial_id ?? null);
      return true;
    }
    return false;
  }

  private _draw(brush: IBrush): void {
    if (this._search === undefined) {
      return;
    }
    const layout = layoutSteps(this._search, this._elapsedS, brush.width, brush.height);
    this._layout = layout;
    drawGrid(brush, layout.left, layout.yTicks, layout.xTicks);
    if (layout.points.length === 0) {
      const text = this._trans.__('no %1 yet', this._search.metric);
      brush.context.fillText(text, brush.width / 2, brush.height / 2);
      return;
    }
    drawSteps(brush, layout);
    this._drawPoints(brush, layout);
  }

  private _drawPoints({ context, theme }: IBrush, layout: IStepsLayout): void {
    layout.points.forEach(({ x, y, improvement }, i) => {
      const isLookedAt = i === this._cursor || improvement.trial_id === this._focus.chosen;
      context.fillStyle = theme.brand;
      context.beginPath();
      context.arc(x, y, 3, 0, 2 * Math.PI);
      context.fill();
      if (isLookedAt) {
        context.strokeStyle = theme.strong;
        context.lineWidth = 2;
        context.beginPath();
        context.arc(x, y, 7, 0, 2 * Math.PI);
        context.stroke();
      }
    });
  }

  private _search: ISearchState | undefined;
  private _elapsedS = 0;
  private _layout: IStepsLayout | undefined;
  private _cursor: number | null = null;
}

function drawSteps({ context, theme }: IBrush, { points, endX }: IStepsLayout): void {
  context.strokeStyle = theme.brand;
  context.lineWidth = 2;
  context.beginPath();
  points.forEach(({ x, y }, i) => {
    context[i === 0 ? 'moveTo' : 'lineTo'](x, i === 0 ? y : (points[i - 1]?.y ?? y));
    context.lineTo(x, y);
  });
  context.lineTo(endX, points.at(-1)?.y ?? 0);
  context.stroke();
}

export interface IStepsLayout {
  left: number;
  /** A corner for each improvement. */
  points: { x: number; y: number; improvement: IImprovement }[];
  endX: number;
  yTicks: { y: number; label: string }[];
  xTicks: { x: number; label: string }[];
}

const RIGHT = 12;
const TOP = 12;
const BOTTOM = 24;
const SPANS_S = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400
];

export function layoutSteps(
  search: ISearchState,
  elapsedS: number,
  width: number,
  height: number
): IStepsLayout {
  const { improvements } = search;
  const end = Math.max(1, elapsedS, improvements.at(-1)?.after_s ?? 0);
  const axis = upward(search.progress_axis);
  const left = roomForTicks(axis);
  const x = (seconds: number): number => left + ((width - left - RIGHT) * seconds) / end;
  const y = (place: number): number => TOP + (height - TOP - BOTTOM) * (1 - place);
  return {
    left,
    points: improvements.map(one => ({
      x: x(one.after_s),
      y: y(placeOn(axis, one.value)),
      improvement: one
    })),
    endX: x(end),
    yTicks: ticksOf(axis).map(({ place, label }) => ({ y: y(place), label })),
    xTicks: timeTicks(end, Math.max(2, Math.floor(width / 90))).map(seconds => ({
      x: x(seconds),
      label: spanText(seconds)
    }))
  };
}

/** At most `limit` round times up to `end`, in seconds. */
export function timeTicks(end: number, limit: number): number[] {
  const day = 86_400;
  const span =
    SPANS_S.find(one => end / one <= limit) ?? day * Math.ceil(end / day / Math.max(1, limit));
  return Array.from({ length: Math.floor(end / span) + 1 }, (_, i) => i * span);
}
